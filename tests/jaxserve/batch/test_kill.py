"""A batch process that is killed: its results stay, the rest follows, and no line is computed twice.

`scripts/prove serving` does the same with a real model.
"""

from jaxserve.cli.main import main
from jaxserve.engine.llm import LLM
from tests.support.fakes.fake_llm import fake_llm
from tests.support.processes import batch_kill

NUM_LINES, WRITTEN = 80, 15


def test_a_killed_batch_resumes_with_the_same_results(tmp_path, monkeypatch):
    monkeypatch.setattr(LLM, "from_config", lambda *_, **__: fake_llm())
    asked = {"ignore_eos": True, "return_token_ids": True}
    bodies = [{"prompt": [1 + i % 200, 2, 3], "max_tokens": 3 + i % 10, **asked} for i in range(NUM_LINES)]
    source = batch_kill.written(tmp_path / "in.jsonl", bodies, lambda _: "/v1/completions")
    options = ("--model", "fake", "--quiet")
    assert main(["batch", str(source), str(tmp_path / "whole.jsonl"), *options]) == 0
    expected = batch_kill.answers(tmp_path / "whole.jsonl")
    assert set(expected) == {f"r{i}" for i in range(NUM_LINES)}
    assert len({str(answer["choices"]) for answer in expected.values()}) == NUM_LINES
    output = tmp_path / "killed.jsonl"
    command = (*batch_kill.FAKE, str(WRITTEN))
    num_left = batch_kill.kill_at(WRITTEN, source, output, *options, command=command)
    assert WRITTEN <= num_left < NUM_LINES
    kept = output.read_bytes()
    assert main(["batch", str(source), str(output), *options]) == 0
    assert output.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    assert batch_kill.answers(output) == expected
