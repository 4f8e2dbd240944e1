"""`EngineMetrics`: counts add up to what was served, for all kinds of steps, samples and ends."""

import asyncio
from dataclasses import replace

import pytest

from jaxserve import SamplingParams
from jaxserve.core.buckets import Bucket
from jaxserve.engine.loop.multi_step_budget import MultiStepBudget
from jaxserve.engine.loop.step_stats import StepMoments, StepRecord
from jaxserve.engine.serving.engine_metrics import NUM_LAST_STEPS, StepSummary
from jaxserve.runner.fake.fake_model import FakeModel
from tests.support.fakes.async_llm import run
from tests.support.fakes.fake_engine import SimulatedClock
from tests.support.fakes.fake_llm import Reciter, fake_llm
from tests.support.fakes.random_operations import RandomDrafts

PARAMS = [
    SamplingParams(max_tokens=1 + i % 29, n=1 + i % 3, seed=i, ignore_eos=i % 2 == 0, stop=None if i % 5 else "tock")
    for i in range(40)
]


@pytest.mark.parametrize("max_rounds", [1, 8])
@pytest.mark.parametrize("num_pages", [200, 26])
@pytest.mark.parametrize("model", [FakeModel(264, bad_chance=0.05), Reciter(264, said="tick tock ")])
def test_counts_are_what_was_served(model, num_pages, max_rounds):
    """With stop strings of several tokens, preemption, failures, and several tokens per step."""
    llm = fake_llm(model, num_pages=num_pages)
    llm.parts.engine.multi_step = MultiStepBudget(max_rounds)

    async def main(served):
        asked = (served.generate(f"prompt {i}", params) for i, params in enumerate(PARAMS))
        return await asyncio.gather(*asked), served.meters

    outputs, meters = run(llm, main)
    samples = [sample for output in outputs for sample in output.outputs]
    lens, reasons = [len(s.token_ids) for s in samples], [s.finish_reason for s in samples]
    begun = sum(length > 0 for length in lens)
    assert meters.finished == {reason: reasons.count(reason) for reason in set(reasons)}
    assert (meters.generated_tokens.count, meters.generated_tokens.sum) == (len(samples), sum(lens))
    assert meters.num_generated_tokens >= sum(lens)  # tokens cut off by a stop string count as generated
    assert meters.num_generated_tokens == meters.inter_token.count + begun
    assert meters.first_token.count == meters.prefill_time.count == meters.decode_time.count == begun
    assert meters.latency.count == meters.queue_time.count == meters.inference_time.count == len(samples)
    assert meters.latency.sum == pytest.approx(meters.queue_time.sum + meters.inference_time.sum)
    assert meters.first_token.sum <= meters.latency.sum
    assert meters.inter_token.sum == pytest.approx(meters.decode_time.sum)
    assert meters.prompt_tokens.sum == sum(len(output.prompt_token_ids) for output in outputs)
    assert meters.num_prompt_tokens <= meters.prompt_tokens.sum
    assert (meters.params_n.sum, meters.params_n.count) == (len(samples), len(outputs))
    assert meters.preemptions.sum == llm.parts.engine.scheduler.stats.num_preemptions
    assert (num_pages > 100) == (meters.preemptions.sum == 0)
    num_steps = llm.parts.engine.scheduler.state.num_committed
    assert meters.step_tokens.sum == meters.num_prompt_tokens + meters.num_generated_tokens
    assert 0 < meters.step_tokens.count <= num_steps  # steps that only begin prompts or end samples are not counted
    assert len(meters.last_steps) == min(NUM_LAST_STEPS, num_steps)


def test_times_are_those_of_the_clock():
    """One request alone, with steps of a second each: three for its prompt, then ten tokens."""
    clock = SimulatedClock()
    llm = fake_llm(clock=clock)
    collect = llm.parts.runner.collect

    def slow(ticket):
        clock.now_s += 1
        return collect(ticket)

    llm.parts.runner.collect = slow

    async def main(served):
        await served.generate([1] * 80, SamplingParams(max_tokens=10, ignore_eos=True))
        return served.meters, served.meters.tokens_per_s

    meters, tokens_per_s = run(llm, main)
    assert (meters.queue_time.sum, meters.prefill_time.sum, meters.decode_time.sum) == (0, 3, 9)
    assert (meters.first_token.sum, meters.latency.sum, meters.inter_token.sum) == (3, 12, 9)
    assert meters.time_per_token.sum == 1
    assert (meters.step_tokens.sum, meters.step_tokens.count) == (80 + 10, 10)
    assert tokens_per_s == pytest.approx(1, rel=0.2)
    assert meters.recent_first_token_s is None  # beyond the window
    assert meters.recent_inter_token_s == 1
    steps = [(step.prompt_tokens, step.decode_tokens) for step in meters.last_steps]
    assert steps == [(32, 0), (32, 0), (16, 0)] + [(0, 1)] * 9


def test_drafts_are_counted_by_position():
    llm = fake_llm(FakeModel(264), max_drafts=3)
    llm.parts.engine.scheduler.state.speculation = RandomDrafts(0)

    async def main(served):
        asked = (served.generate(f"prompt {i}", params) for i, params in enumerate(PARAMS))
        return await asyncio.gather(*asked), served.meters

    outputs, meters = run(llm, main)
    drafts, by_position = meters.drafts, meters.drafts.accepted_by_position
    assert 0 < drafts.num_drafts < drafts.num_tokens <= 3 * drafts.num_drafts
    assert 0 < drafts.num_accepted < drafts.num_tokens
    assert sum(by_position.values()) == drafts.num_accepted
    assert drafts.num_drafts >= by_position[0] >= by_position[1] >= by_position[2] > 0 == by_position[3]
    num_tokens = sum(len(sample.token_ids) for output in outputs for sample in output.outputs)
    assert meters.generated_tokens.sum == num_tokens > drafts.num_accepted


@pytest.mark.parametrize(
    ("bucket", "num_tokens", "num_rounds", "expected"),
    [
        (Bucket(8, 8, 4), 6, 1, (6, 0, 2)),
        (Bucket(8, 8, 4), 24, 4, (6, 0, 2)),
        (Bucket(64, 8, 4), 50, 1, (6, 44, 14)),
        (Bucket(32, 8, 4, max_drafts=3), 24, 1, (24, 0, 8)),
        (Bucket(32, 8, 4, max_drafts=3), 60, 3, (20, 0, 12)),
    ],
    ids=["a round", "rounds", "mixed", "drafts", "drafts in rounds"],
)
def test_steps_are_divided_into_all_that_they_compute(bucket, num_tokens, num_rounds, expected):
    record = StepRecord(bucket, 6, num_tokens, 6, StepMoments(0.0, 0.1), num_rounds)
    summary = StepSummary.of(record)
    assert summary[:3] == expected
    assert sum(expected) == bucket.num_tokens
    assert StepSummary.of(replace(record, num_tokens=0, num_rounds=0))[:3] == (0, 0, 0), "all rows had ended"
