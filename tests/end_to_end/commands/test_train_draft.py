"""`jaxserve train-draft` trains heads that an engine drafts with, and names mistakes."""

import json

import pytest

from jaxserve import LLM
from jaxserve.cli.main import main
from tests.support.drafting import always, draft_counts
from tests.support.golden_data import checkpoint
from tests.support.processes.command_line import check_mistake_here
from tests.support.tiny_engines import SMALL

pytestmark = pytest.mark.usefixtures("as_optax_adds")

ENGINE = ["--dtype", "float32", "--num-pages", "200"]
OPTIONS = ["--learning-rate", "0.02", *ENGINE]


@pytest.mark.thorough  # in half a minute; CI trains heads without the command (`tests/jaxserve/train_draft`)
def test_heads_are_trained_and_used(tmp_path, capsys):
    """The texts of a tiny model repeat themselves, which heads begin to learn in 20 steps."""
    out, model = tmp_path / "heads", str(checkpoint("llama3"))
    sizes = ["--num-tokens", "2000", "--text-len", "32", "--max-steps", "20", "--epochs", "100"]
    assert main(["train-draft", model, "--out", str(out), *sizes, *OPTIONS]) == 0
    assert "3 heads, right in a share of" in capsys.readouterr().err
    config = json.loads((out / "config.json").read_text())
    assert config["medusa_num_heads"] == len(config["guess_shares"]) == 3
    page = (out / "training.html").read_text()
    assert "<svg" in page
    assert page.count("<th>depth ") == 3
    results = json.loads((out / "training.json").read_text())
    assert results["shares"] == config["guess_shares"]
    assert (results["steps"], len(results["losses"])) == (20, 20)
    names = {"config.json", "model.safetensors", "texts.npz", "training.html", "training.json"}
    assert {path.name for path in out.iterdir()} == names

    options = {"method": "medusa", "model": str(out), "num_speculative_tokens": 6}
    llm = always(LLM(model, speculative_config=options, **SMALL))
    assert draft_counts(llm)[1] > 0


def test_mistakes_are_named(tmp_path, capsys):
    model = str(checkpoint("llama3"))
    for flag, value, message in (
        ("--learning-rate", "2", "must be a number from 1e-06 to 1"),
        ("--temperature", "nan", "must be a number from 0 to 2"),
        ("--depth", "17", "must be an integer from 1 to 16"),
        ("--text-len", "1", "must be an integer of at least 8"),
    ):
        check_mistake_here(["train-draft", model, "--out", str(tmp_path), flag, value], message, capsys)
    for flag in ("--epochs", "--draft-vocab-size"):
        given = ["--method", "layer_skip", "--out", str(tmp_path), flag, "2"]
        check_mistake_here(["train-draft", model, *given], f"{flag} has no use with --method layer_skip", capsys)
    (tmp_path / "config.json").write_text("{}")
    check_mistake_here(["train-draft", model, "--out", str(tmp_path)], "no training has begun in it", capsys)
    file = str(tmp_path / "config.json")
    check_mistake_here(["train-draft", model, "--out", file], "config.json cannot be made (File exists)", capsys)
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    options = ["--out", str(tmp_path / "out"), "--prompts", str(empty), "--quiet"]
    check_mistake_here(["train-draft", model, *options], "has no line with a prompt", capsys)
    empty.write_text("a prompt\n")
    check_mistake_here(["train-draft", model, *options], "--prompts needs a tokenizer", capsys)


@pytest.mark.thorough
def test_too_few_tokens_are_named(tmp_path, capsys):
    """Once the texts are there."""
    options = ["--out", str(tmp_path), "--num-tokens", "5", "--text-len", "32", *OPTIONS, "--quiet"]
    argv = ["train-draft", str(checkpoint("llama3")), *options]
    check_mistake_here(argv, "are too few for guesses of 3 tokens: ask for more", capsys)
