"""A server answers with the texts of an engine without drafts; /metrics counts drafts, under the names of vLLM."""

import json

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from jaxserve import SamplingParams
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


def answered(text: str) -> tuple[list[int], list[float]]:
    """The token ids of an answer, or of a stream, and their log-probabilities."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line and line != "data: [DONE]"]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    ids = [token for choice in choices for token in choice["token_ids"] or ()]
    return ids, [value for choice in choices if choice["logprobs"] for value in choice["logprobs"]["token_logprobs"]]


def test_answers_are_those_without_drafts_and_counters_are_the_drafts_of_all_steps_by_position():
    llm, seen = always(rescheduled(tiny_engine("llama3", speculative_config=DRAFTS), None)), list[DraftCounts]()

    def see(outcome) -> None:
        if outcome.drafts is not None:
            seen.append(outcome.drafts)

    asked = [golden.prompt * 2 for golden in goldens("llama3")]
    options = [
        {"max_tokens": 32, "ignore_eos": True, "temperature": 0.5 * i, "seed": i, "logprobs": 2}
        for i in range(len(asked))
    ]
    with watched(llm, see), running(llm) as server:
        before = server.get("/metrics").text
        for i, (prompt, params) in enumerate(zip(asked, options, strict=True)):
            (plain,) = tiny_engine("llama3").generate(prompt, SamplingParams(**params), use_tqdm=False)[0].outputs
            body = {"prompt": prompt, "return_token_ids": True, "stream": i % 2 == 1, **params}
            ids, logprobs = answered(server.post("/v1/completions", body).text)
            assert ids == plain.token_ids
            drawn = [found[token].logprob for found, token in zip(plain.logprobs, plain.token_ids, strict=True)]
            np.testing.assert_allclose(logprobs, drawn, atol=2e-5)
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
