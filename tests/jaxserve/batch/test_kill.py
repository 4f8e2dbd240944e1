"""A batch process that is killed: its results stay, the rest follows, and no line is computed twice."""

from tests.support.golden_data import checkpoint
from tests.support.processes import batch_kill
from tests.support.tiny_engines import flags_of

SIZES = {"max_model_len": 64, "max_num_seqs": 2, "max_num_batched_tokens": 16, "num_pages": 40}
NUM_LINES, WRITTEN = 80, 15


def test_a_killed_batch_resumes_with_the_same_results(tmp_path):
    asked = {"ignore_eos": True, "return_token_ids": True}
    bodies = [{"prompt": [1 + i % 200, 2, 3], "max_tokens": 3 + i % 10, **asked} for i in range(NUM_LINES)]
    source = batch_kill.written(tmp_path / "in.jsonl", bodies, lambda _: "/v1/completions")
    options = ("--model", str(checkpoint("llama3")), "--load-format", "dummy", *flags_of(SIZES))
    batch_kill.run(source, tmp_path / "whole.jsonl", *options)
    expected = batch_kill.answers(tmp_path / "whole.jsonl")
    assert set(expected) == {f"r{i}" for i in range(NUM_LINES)}
    assert len({str(answer["choices"]) for answer in expected.values()}) == NUM_LINES
    output = tmp_path / "killed.jsonl"
    num_left = batch_kill.kill_at(WRITTEN, source, output, *options)
    assert WRITTEN <= num_left < NUM_LINES
    kept = output.read_bytes()
    batch_kill.run(source, output, *options)
    assert output.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    assert batch_kill.answers(output) == expected
