"""Batch files: every line gets exactly one result, even if it is invalid or the run is killed."""

import asyncio
import codecs
import json
import random

import pytest

from jaxserve.batch.results_journal import ResultsJournal
from jaxserve.batch.run_batch import run_batch
from jaxserve.cli.main import main
from jaxserve.core.errors import EngineDeadError, RequestError
from jaxserve.engine.async_llm import AsyncLLM
from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.server.server_config import ServerConfig
from jaxserve.server.server_state import ServerState
from tests.support.drafting import counted
from tests.support.fakes.fake_llm import Reciter, all_pages_are_back, fake_llm

NAMES = ("m",)
REPEATING = Reciter(264, said="tick tock ")


def line(i, **body):
    asked = {"model": "m", "prompt": f"prompt {i}", "max_tokens": 1 + i % 7, **body}
    return {"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": asked}


def chat(i):
    body = {"messages": [{"role": "user", "content": f"{i}"}], "max_completion_tokens": 3}
    return {"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def embedding(i):
    return {"custom_id": f"r{i}", "method": "POST", "url": "/v1/embeddings", "body": {"input": f"text {i}"}}


def response(i):
    body = {"input": f"{i}", "max_output_tokens": 3}
    return {"custom_id": f"r{i}", "method": "POST", "url": "/v1/responses", "body": body}


MIXED = [(line, chat, embedding, response)[i % 4](i) for i in range(60)]
BAD = [
    ({"custom_id": "a"}, "method"),
    ({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}}, "method"),
    ({"custom_id": "a", "method": "POST", "url": "/v1/nothing", "body": {}}, "url"),
    ({"custom_id": "a", "method": "POST", "url": "file:///etc/passwd", "body": {}}, "url"),
    ({"method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}, "custom_id"),
    (line(0, stream=True), "stream"),
    (line(0, tools=[{"type": "function"}]), "tools"),
    (line(0, temperature=-1), "temperature"),
    (line(0, structured_outputs={"json": {"type": "integer"}}), "structured_outputs"),
    (line(0, response_format={"type": "json_schema", "json_schema": {}}), "response_format.json_schema.name"),
    ({**chat(0), "body": {"messages": [{"role": "user", "contents": "x"}]}}, "messages[0].contents"),
    (line(0, model="other"), "model"),
    (line(0, prompt="x" * 200), "prompt"),
    ({**embedding(0), "body": {"input": "x" * 200}}, "input"),
    ({**response(0), "body": {"input": [{"role": "user"}]}}, "input[0].content"),
    ({**response(0), "body": {"input": "x", "store": True}}, "store"),
    ({**line(0), "extra": 1}, "extra"),
    ({**line(0), "body": None}, None),
    ([1], None),
]


def written(path, lines):
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines))
    return path


def results(path):
    return [json.loads(each) for each in path.read_text().splitlines()]


def number_of(result):
    return int(result["id"].removeprefix("batch_req_").partition("_")[0])


def run(source, output, *, model=None, max_inflight=8, seed=0, progress=lambda *_: None, llm=None):
    """A batch over a new engine."""
    llm = fake_llm(model) if llm is None else llm

    async def main():
        async with AsyncLLM.from_llm(llm) as served:
            state = ServerState(ServerConfig(served_model_name=NAMES), NAMES)
            state.open(served.client)
            with ResultsJournal(output, source) as journal:
                options = {"max_inflight": max_inflight, "seed": seed, "progress": progress}
                return await run_batch(state, source, journal, **options)

    summary = asyncio.run(main())
    assert all_pages_are_back(llm)
    return summary


def said(path):
    """The results by line, without timestamps."""
    found = {}
    for each in results(path):
        assert each["custom_id"] not in found
        body = each["response"]["body"]
        found[each["custom_id"]] = [body.get(name) for name in ("choices", "data", "output", "usage", "error")]
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The input, and its results in one run."""
    folder = tmp_path_factory.mktemp("batch")
    source = written(folder / "in.jsonl", MIXED)
    summary = run(source, folder / "out.jsonl")
    assert (summary.num_lines, summary.num_before) == (60, 0)
    assert not any(each["error"] for each in results(folder / "out.jsonl"))
    return source, said(folder / "out.jsonl")


def test_every_line_is_answered_once_independent_of_concurrency(whole, tmp_path):
    source, expected = whole
    assert set(expected) == {f"r{i}" for i in range(60)}
    run(source, tmp_path / "alone.jsonl", max_inflight=1)
    assert said(tmp_path / "alone.jsonl") == expected
    run(source, tmp_path / "other.jsonl", seed=1)
    assert said(tmp_path / "other.jsonl") != expected


def test_drafts_change_no_result(whole, tmp_path):
    source, expected = whole
    run(source, tmp_path / "out.jsonl", llm=fake_llm(max_drafts=3))
    assert said(tmp_path / "out.jsonl") == expected


def test_texts_that_repeat_themselves_are_drafted(tmp_path):
    source = written(tmp_path / "in.jsonl", [line(i, max_tokens=60) for i in range(16)])
    run(source, tmp_path / "plain.jsonl", model=REPEATING)
    llm = fake_llm(REPEATING, max_drafts=3)
    with counted(llm) as seen:
        run(source, tmp_path / "out.jsonl", llm=llm)
    assert said(tmp_path / "out.jsonl") == said(tmp_path / "plain.jsonl")
    assert sum(accepted for _, accepted in seen) > 0


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_run_resumes_where_it_stopped(whole, tmp_path, seed):
    """A kill leaves some results; the last one may be incomplete."""
    source, expected = whole
    rng, output = random.Random(seed), tmp_path / "out.jsonl"
    run(source, output)
    raw = output.read_bytes()
    cut = rng.randrange(len(raw))
    output.write_bytes(raw[:cut])
    summary = run(source, output)
    assert summary.num_before == raw[:cut].count(b"\n")
    assert said(output) == expected
    assert output.read_bytes().startswith(raw[: raw.rfind(b"\n", 0, cut) + 1])


def test_an_invalid_line_has_an_error_and_affects_no_other(tmp_path):
    lines = [each for i, (bad, _) in enumerate(BAD) for each in (bad, line(100 + i))]
    raw = ["{", '{"custom_id": "a"', "", "NaN", "\udcff".encode("utf-8", "surrogateescape").decode("latin-1")]
    source = written(tmp_path / "in.jsonl", [*lines, *raw])
    summary = run(source, tmp_path / "out.jsonl")
    found = results(tmp_path / "out.jsonl")
    failed = {number_of(each): each for each in found if each["error"]}
    assert len(failed) == len(BAD) + len(raw) - 1
    assert summary.num_lines == len(found) == 2 * len(BAD) + len(raw) - 1
    for i, (bad, param) in enumerate(BAD):
        each = failed[2 * i + 1]
        assert each["error"]["param"] == param
        assert each["custom_id"] == (bad.get("custom_id") if isinstance(bad, dict) else None)
        assert each["response"]["status_code"] >= 400


def test_a_byte_order_mark_at_the_start_is_no_part_of_the_first_line(tmp_path):
    source = written(tmp_path / "in.jsonl", [line(i) for i in range(2)])
    source.write_bytes(codecs.BOM_UTF8 + source.read_bytes())
    run(source, tmp_path / "out.jsonl")
    assert not any(each["error"] for each in results(tmp_path / "out.jsonl"))


def test_a_failure_of_one_line_affects_no_other(tmp_path):
    source = written(tmp_path / "in.jsonl", [line(i, max_tokens=4) for i in range(40)])
    run(source, tmp_path / "out.jsonl", model=FakeModel(264, bad_chance=0.1))
    failed = [each["error"]["code"] for each in results(tmp_path / "out.jsonl") if each["error"]]
    assert 0 < len(failed) < 40
    assert set(failed) == {"not_finite"}


def test_written_results_survive_the_engine_s_death(whole, tmp_path):
    source, expected = whole
    llm, output, num_steps = fake_llm(), tmp_path / "out.jsonl", 0
    collect = llm.parts.runner.collect

    def failing(ticket):
        nonlocal num_steps
        num_steps += 1
        if num_steps > 15:
            raise RuntimeError("gone")
        return collect(ticket)

    llm.parts.runner.collect = failing
    with pytest.raises(EngineDeadError):
        run(source, output, llm=llm)
    assert 0 < len(said(output)) < 60
    assert not any(each["error"] for each in results(output))
    run(source, output)
    assert said(output) == expected


def test_no_more_lines_are_read_than_are_in_progress(whole, tmp_path):
    source, _ = whole
    llm, most = fake_llm(), 0
    add = llm.output_processor.add

    def counted(request):
        nonlocal most
        state = add(request)
        most = max(most, len(llm.parts.engine.scheduler.state.waiting))
        return state

    llm.output_processor.add = counted
    run(source, tmp_path / "out.jsonl", llm=llm, max_inflight=3)
    assert most <= 3


OTHERS = {
    "without the first line": MIXED[1:],
    "some lines less": MIXED[:10],
    "another body under an id": [*MIXED[:-1], line(59, prompt="another")],
    "lines exchanged": [MIXED[1], MIXED[0], *MIXED[2:]],
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_the_results_of_another_input_are_not_changed(whole, tmp_path, other):
    """Refused before an engine is built and before anything is written."""
    source, output = whole[0], tmp_path / "out.jsonl"
    run(source, output)
    output.write_bytes(before := output.read_bytes() + b'{"id":"batch_req_')
    with pytest.raises(RequestError, match="does not have"):
        ResultsJournal(output, written(tmp_path / "other.jsonl", other))
    assert output.read_bytes() == before
    with ResultsJournal(output, source):
        pass
    assert output.read_bytes() == before[: before.rfind(b"\n") + 1]


NO_RESULTS = [b"a note without an end", b'{"no": "results"}\n', json.dumps(line(0)).encode(), b"\n\n[", b" "]


@pytest.mark.parametrize("raw", NO_RESULTS)
def test_a_file_with_other_contents_is_not_changed(whole, tmp_path, raw):
    output = tmp_path / "out.jsonl"
    output.write_bytes(raw)
    with pytest.raises(RequestError, match="something other than batch results"):
        ResultsJournal(output, whole[0])
    assert output.read_bytes() == raw


def test_two_runs_do_not_write_one_file(tmp_path):
    source, output = written(tmp_path / "in.jsonl", [line(0)]), tmp_path / "out.jsonl"
    with ResultsJournal(output, source), pytest.raises(RequestError, match="another batch"):
        ResultsJournal(output, source)


def test_no_line_is_refused_by_a_full_queue(tmp_path):
    """The command sets no queue limit, and refuses the options that would set one."""
    source, out = str(written(tmp_path / "in.jsonl", [line(0)])), str(tmp_path / "out.jsonl")
    for flag in ("--max-num-waiting", "--max-num-queued-reqs", "--max-waiting-tokens"):
        with pytest.raises(SystemExit, match="2"):
            main(["batch", source, out, flag, "2"])


def test_progress_counts_every_line(whole, tmp_path):
    source, _ = whole
    told = []
    summary = run(source, tmp_path / "out.jsonl", progress=lambda lines, tokens: told.append((lines, tokens)))
    assert [sum(each) for each in zip(*told, strict=True)] == [60, summary.num_tokens]
