"""What is reported of drafts is what came of the timed steps; drafting takes the time of what drafts."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from jaxserve.bench.lengths import LengthRange
from jaxserve.bench.offline.measure import Workloads
from jaxserve.bench.offline.workload import FileWorkload, RandomWorkload, Workload
from jaxserve.bench.profile.traced_batch import device_trace
from jaxserve.bench.spec import time_split
from jaxserve.bench.spec.compare_drafts import DraftResult, compare_drafts
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.core.step_outcome import DraftCounts
from jaxserve.engine.llm import LLM
from tests.support.drafting import always, counted, watched
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import tiny_engine

NGRAM = SpeculativeConfig(method="ngram", num_speculative_tokens=3, prompt_lookup_min=1, prompt_lookup_max=3)
ITSELF = SpeculativeConfig(method="draft_model", model=str(checkpoint("llama3")), num_speculative_tokens=3)
SUFFIX = SpeculativeConfig(method="suffix", num_speculative_tokens=6, suffix_decoding_cached_tokens=512)
REPEATS = 2
RANDOM = RandomWorkload(6, LengthRange(8, 20), LengthRange(30, 40), 320, 0)


@dataclass(frozen=True, slots=True)
class Sampled(Workload):
    """One text that does not repeat itself."""

    def params(self) -> list[SamplingParams]:
        return [replace(params, temperature=1.5, seed=3) for params in Workload.params(self)]


def drafting(config: SpeculativeConfig) -> LLM:
    return always(tiny_engine("llama3", speculative_config=config))


Compared = tuple[DraftResult, list[tuple[str, DraftCounts]], list[str]]


def compare(config: SpeculativeConfig, workloads: Workloads) -> Compared:
    """The result, the drafts of each step with the part of the benchmark, and the parts that ran under the profiler."""
    llm, said, seen, traced = drafting(config), list[str](), list[tuple[str, DraftCounts]](), list[str]()

    @contextmanager
    def noted(folder):
        traced.append(said[-1])
        with device_trace(folder):
            yield

    def see(outcome) -> None:
        if outcome.drafts is not None:
            seen.append((said[-1], outcome.drafts))

    with pytest.MonkeyPatch.context() as patch, watched(llm, see):
        patch.setattr(time_split, "device_trace", noted)
        result = compare_drafts(llm, "tiny", workloads, REPEATS, said.append)
    assert said == ["tiny: warm-up", "tiny: timed pass 1 of 2", "tiny: timed pass 2 of 2", "tiny: traced steps"]
    return result, seen, traced


@cache
def compared(config: SpeculativeConfig) -> Compared:
    return compare(config, RANDOM)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("config", [NGRAM, ITSELF], ids=lambda config: config.method)
def test_tokens_a_pass_and_acceptance_by_position_are_those_of_the_timed_steps(config):
    result, seen, _ = compared(config)
    drafts = [counts for part, counts in seen if "timed pass" in part]
    proposed, accepted = (
        np.concatenate([getattr(c, name).ravel() for c in drafts]) for name in ("num_proposed", "num_accepted")
    )
    passes = proposed > 0
    assert result.num_drafted == proposed.sum()
    assert result.num_accepted == accepted.sum() > 0
    assert result.tokens_a_pass == pytest.approx(1 + accepted[passes].mean())
    assert result.acceptance == pytest.approx([(accepted[passes] > place).mean() for place in range(accepted.max())])
    assert len(drafts) < len(seen)  # others are not counted
    if config is ITSELF:
        assert result.num_accepted == result.num_drafted


@pytest.mark.thorough
def test_a_draft_model_takes_the_time_and_n_grams_do_not():
    """Both draft in every pass; the draft model is as large as the model, and runs three times for each."""

    def part(config: SpeculativeConfig) -> float:
        split = compared(config)[0].time_split
        assert split is not None
        shares = split.drafting, split.verifying, split.other, split.host
        assert min(shares) > 0
        assert sum(shares) == pytest.approx(1)
        return split.drafting / (split.drafting + split.verifying)

    assert part(ITSELF) > 0.4
    assert part(NGRAM) < 0.1


def test_no_timed_pass_runs_under_the_profiler_and_the_engine_is_left_as_it_was():
    llm = drafting(NGRAM)
    _, _, traced = compared(NGRAM)
    assert traced == ["tiny: traced steps"]
    assert not llm.output_processor.has_work
    assert llm.parts.engine.observer is None


@pytest.mark.thorough
def test_prompts_of_a_file_are_new_in_every_pass():
    """No pass drafts from the answers that earlier ones gave to the same prompts, though outputs are kept."""
    file = FileWorkload(Sampled([goldens("llama3")[0].prompt], [48]))
    result, seen, _ = compare(SUFFIX, file)
    accepted = {part: sum(int(c.num_accepted.sum()) for other, c in seen if other == part) for part, _ in seen}
    assert len(accepted) == 2 + REPEATS
    assert len(set(accepted.values())) == 1
    assert result.num_accepted < 10 * REPEATS
    again = {"prompt_token_ids": file.workload.prompts[0]}
    llm = drafting(SUFFIX)
    with counted(llm) as counts:
        for _ in range(2):  # the control
            llm.generate([again], file.workload.params(), use_tqdm=False)
    assert np.sum(counts, axis=0)[1] > 30
