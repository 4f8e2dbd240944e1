"""Wiring: `compare_drafts`: an engine with drafts against the same engine without, in turns."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from jaxserve.bench.offline.measure import Workloads
from jaxserve.bench.offline.workload import Workload
from jaxserve.bench.spec.time_split import TimeSplit, split_time, trace_drafting
from jaxserve.engine.loop.step_stats import StepLog
from jaxserve.engine.serving.engine_metrics import DraftMetrics

if TYPE_CHECKING:
    from jaxserve.engine.llm import LLM


@dataclass(frozen=True, slots=True)
class DraftResult:
    """name: of the drafts. options: of the engine. tokens_per_s, plain_tokens_per_s: medians of the timed passes, with
    drafts and without. ratio: the median of the ratios of passes next to each other. tokens_a_pass: by which a row
    advances on average in a forward pass that has drafts of it. num_drafted, num_accepted: draft tokens. acceptance: of
    each position how often it was accepted, of the passes with drafts. drafting_share: of the tokens that were drawn in
    such passes. time_split: None where no step with drafts could be traced. host_share: of the time in which the host
    did not wait for the device.
    """

    name: str
    options: Mapping[str, Any]
    tokens_per_s: float
    plain_tokens_per_s: float
    ratio: float
    tokens_a_pass: float
    num_drafted: int
    num_accepted: int
    acceptance: list[float]
    drafting_share: float
    time_split: TimeSplit | None
    host_share: float


def compare_drafts(
    llm: "LLM", name: str, workloads: Workloads, repeats: int, on_progress: Callable[[str], None]
) -> DraftResult:
    """Time `repeats` passes with drafts and as many without, alternately, after one of each. Steps with drafts are
    traced afterwards.

    The same engine does without drafts where requests say so; its weights and programs are the same then.
    """
    first = workloads.of_pass(0)
    first.check_fits(llm.parts.sizes.max_model_len)
    log, drafted_s, plain_s = StepLog(), list[float](), list[float]()
    for number in range(repeats + 1):
        on_progress(f"{name}: warm-up" if not number else f"{name}: timed pass {number} of {repeats}")
        workload = workloads.of_pass(number)
        for has_drafts in (True, False) if number % 2 else (False, True):
            llm.parts.engine.observer = log if has_drafts and number else None
            (drafted_s if has_drafts else plain_s).append(_seconds(llm, workload, has_drafts))
    llm.parts.engine.observer = None
    num_tokens = [workloads.of_pass(number).num_output_tokens for number in range(1, repeats + 1)]
    rates, plain = ([n / s for n, s in zip(num_tokens, times[1:], strict=True)] for times in (drafted_s, plain_s))
    on_progress(f"{name}: traced steps")
    llm.reset_prefix_cache()
    last, wall_s = workloads.of_pass(repeats + 1), sum(drafted_s[1:])
    drafting = trace_drafting(llm, _new_prompts(last), last.params())
    counts = DraftMetrics()
    for record in log.records:
        if record.drafts is not None:
            counts.observe(record.drafts)
    num_passes = max(counts.num_drafts, 1)
    most = len(counts.accepted_by_position)
    return DraftResult(
        name=name,
        options=llm.config.speculative_config or {},
        tokens_per_s=statistics.median(rates),
        plain_tokens_per_s=statistics.median(plain),
        ratio=statistics.median(a / b for a, b in zip(rates, plain, strict=True)),
        tokens_a_pass=1 + counts.num_accepted / num_passes,
        num_drafted=counts.num_tokens,
        num_accepted=counts.num_accepted,
        acceptance=[counts.accepted_by_position[place] / num_passes for place in range(most)],
        drafting_share=(counts.num_drafts + counts.num_accepted) / max(sum(num_tokens), 1),
        time_split=split_time(log, wall_s, drafting),
        host_share=log.report(wall_s).host_share,
    )


def _seconds(llm: "LLM", workload: Workload, has_drafts: bool) -> float:
    llm.reset_prefix_cache()
    prompts, params = _new_prompts(workload), [replace(param, speculation=has_drafts) for param in workload.params()]
    started_s = time.monotonic()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    elapsed_s = time.monotonic() - started_s
    workload.check_complete(outputs)
    return elapsed_s


def _new_prompts(workload: Workload) -> list[dict[str, Any]]:
    """The prompts with a salt of their own: drafts come from no answer to the same prompts in an earlier pass."""
    salt = uuid4().hex
    return [{"prompt_token_ids": prompt, "cache_salt": salt} for prompt in workload.prompts]
