"""`jaxserve batch`: what it refuses before a model is loaded, what it says at the end, and its exit codes."""

import json

import pytest

from jaxserve.cli import batch
from jaxserve.cli.main import main
from jaxserve.engine.llm import LLM
from tests.support.fakes.fake_llm import fake_llm


@pytest.fixture
def loads(monkeypatch):
    """The models that were loaded; each is a fake."""
    loaded = []

    def load(config, **_):
        loaded.append(config.model)
        return fake_llm()

    monkeypatch.setattr(LLM, "from_config", load)
    return loaded


@pytest.fixture
def batch_of(tmp_path, capsys):
    """Runs the verb over a file of lines; returns the exit code and what it says."""

    def run(*lines, out="out.jsonl", options=("--model", "m")):
        source = tmp_path / "in.jsonl"
        source.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines))
        code = main(["batch", str(source), str(tmp_path / out), *options])
        return code, capsys.readouterr().err

    return run


def line(name, **body):
    return {
        "custom_id": name,
        "method": "POST",
        "url": "/v1/completions",
        "body": {"prompt": "x", "max_tokens": 2} | body,
    }


REFUSED = {
    "an id twice": ([line("a"), line("b"), "", line("a")], {}, "lines 1 and 4 have the same custom_id 'a'"),
    "another model": (
        [line("a", model="m"), line("b", model="n"), line("c", model="n")],
        {},
        "line 2: the model 'n' is not 'm', which this run serves: put its lines into a file of their own, or add "
        "--served-model-name n",
    ),
    "two models, none given": ([line("a", model="m"), line("b", model="n")], {"options": ()}, "'n' is not 'm'"),
    "a name twice": (
        [line("a")],
        {"options": ("--model", "m", "--served-model-name", "n", "--served-model-name", "n")},
        "served_model_name='n' is given twice",
    ),
    "no model": ([line("a")], {"options": ()}, "names no model: give --model"),
    "no lines": (["", ""], {}, "has no lines"),
    "no folder": ([line("a")], {"out": "none/out.jsonl"}, "none of out.jsonl does not exist: create it first"),
    "a folder": ([line("a")], {"out": "."}, "is a folder: name a file"),
    "in a file": ([line("a")], {"out": "in.jsonl/out.jsonl"}, "does not exist"),
    "its input": ([line("a")], {"out": "in.jsonl"}, "input and output are the same file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_before_the_model_is_loaded_it_refuses(name, loads, batch_of):
    lines, options, message = REFUSED[name]
    code, said = batch_of(*lines, **options)
    assert code == 2
    assert message in said
    assert said.count("\n") == 1
    assert not loads


def test_an_output_that_cannot_be_opened_is_named(loads, batch_of, monkeypatch, tmp_path):
    monkeypatch.setattr("pathlib.Path.open", _denied(tmp_path / "out.jsonl"))
    code, said = batch_of(line("a"))
    assert (code, bool(loads)) == (2, False)
    assert "out.jsonl cannot be written: Permission denied" in said


def _denied(path):
    """`Path.open`, but for one path. Tests may run as root, whom permissions do not stop."""
    from pathlib import Path

    before = Path.open

    def opened(self, *args, **options):
        if self == path:
            raise PermissionError(13, "Permission denied", str(self))
        return before(self, *args, **options)

    return opened


def test_the_names_of_lines_may_be_served_names(loads, batch_of):
    names = ("--served-model-name", "n", "--served-model-name", "o")
    code, _ = batch_of(line("a", model="n"), line("b", model="o"), options=("--model", "m", *names))
    assert (code, loads) == (0, ["m"])


def test_lines_may_name_a_local_model_by_its_path_or_its_last_part(loads, batch_of, tmp_path):
    (tmp_path / "secret").mkdir()
    path = tmp_path / "secret" / "tiny.gguf"
    path.touch()
    lines = [line("a"), line("b", model="tiny"), line("c", model=str(path))]
    assert batch_of(*lines, options=("--model", str(path)))[0] == 0
    results = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    answered = {result["custom_id"]: result["response"]["body"]["model"] for result in results}
    assert answered == {"a": "tiny", "b": "tiny", "c": str(path)}


def test_a_finished_file_loads_no_model(loads, batch_of):
    assert batch_of(line("a"), line("b"))[0] == 0
    code, said = batch_of(line("a"), line("b"))
    assert (code, loads) == (0, ["m"])
    assert "all 2 lines have a result" in said
    assert "no model is loaded" in said


def test_the_end_shows_the_first_errors_and_counts_them_by_kind(loads, batch_of):
    bad = [line(f"b{i}", temperature=-1) for i in range(7)]
    first = [line("a"), "{", line("t", nonsense=1), *bad]
    code, said = batch_of(*first)
    assert code == 1
    assert "10 lines answered, 9 with an error" in said
    assert "  line 2: the line is not JSON" in said
    assert "  line 4 (b0): " in said
    assert "(b4)" not in said  # the first five errors only
    assert "         7  400 BadRequestError, temperature\n" in said
    again, said_again = batch_of(*first)
    assert (again, len(loads)) == (1, 1)
    assert said_again.partition("\n")[2] == said[said.index("the first errors") :]


def test_where_no_line_succeeds_the_code_is_2(loads, batch_of):
    assert batch_of("{", line("t", nonsense=1))[0] == 2


def test_no_bar_is_open_while_the_model_is_loaded(loads, batch_of, monkeypatch):
    from jaxserve.core import progress_bars

    opened = []
    enter = progress_bars.GenerateBar.__enter__

    def noted(bar):
        opened.append(list(loads))
        return enter(bar)

    monkeypatch.setattr(progress_bars.GenerateBar, "__enter__", noted)
    batch_of(line("a"))
    assert opened == [["m"]]


def test_results_for_a_bucket_are_kept_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSERVE_CACHE", str(tmp_path / "own"))
    assert batch._spool() == tmp_path / "own" / "batch"
    assert (tmp_path / "own" / "batch").is_dir()
