"""A server's /metrics count the drafts of its engine, under the names of vLLM."""

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from jaxserve.bench.serving.client.speculation_metrics import read_counts, speculation
from jaxserve.core.step_outcome import DraftCounts
from tests.end_to_end.drafts.test_speculation import DRAFTS
from tests.support.drafting import always, watched
from tests.support.golden_data import goldens
from tests.support.serving.http_server import running
from tests.support.tiny_engines import rescheduled, tiny_engine

NAMES = ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_accepted_tokens_per_pos")


def counters(text: str, prefix: str) -> dict[str, dict[str | None, float]]:
    """Of each of `NAMES` the values by position; asserts that they are counters of the served model."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    found = dict[str, dict[str | None, float]]()
    for name in NAMES:
        family = families[f"{prefix}:spec_decode_{name}"]
        assert family.type == "counter"
        samples = [sample for sample in family.samples if sample.name.endswith("_total")]
        assert all({"model_name": "fake", "engine": "0"}.items() <= sample.labels.items() for sample in samples)
        found[name] = {sample.labels.get("position"): sample.value for sample in samples}
    return found


def test_counters_are_the_drafts_of_all_steps_by_position():
    llm, seen = always(rescheduled(tiny_engine("llama3", speculative_config=DRAFTS), None)), list[DraftCounts]()

    def see(outcome) -> None:
        if outcome.drafts is not None:
            seen.append(outcome.drafts)

    with watched(llm, see), running(llm) as server:
        before = server.get("/metrics").text
        for i, golden in enumerate(goldens("llama3")):
            body = {
                "prompt": golden.prompt * 2,
                "max_tokens": 32,
                "ignore_eos": True,
                "temperature": 0.5 * i,
                "seed": i,
            }
            assert server.post("/v1/completions", body).status_code == 200
        after = server.get("/metrics").text
    assert [value for values in counters(before, "vllm").values() for value in values.values()] == [0, 0, 0]
    proposed = np.concatenate([counts.num_proposed.ravel() for counts in seen])
    accepted = np.concatenate([counts.num_accepted.ravel() for counts in seen])
    assert 0 < accepted.sum() < proposed.sum()
    by_position = {str(place): (accepted > place).sum() for place in range(accepted.max())}
    expected = [{None: (proposed > 0).sum()}, {None: proposed.sum()}, {None: accepted.sum()}, by_position]
    for prefix in ("vllm", "jaxserve"):
        assert list(counters(after, prefix).values()) == expected
    report = speculation(read_counts(before), read_counts(after))  # what `bench serve` makes of them
    assert report["spec_decode_acceptance_length"] == 1 + accepted.sum() / (proposed > 0).sum()
