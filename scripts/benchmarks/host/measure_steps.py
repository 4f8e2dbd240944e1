"""`measure`: the median decode step of an engine with all slots occupied, by part."""

from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from jaxserve.bench.profile.host_parts import instrumented_engine
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.engine.llm import LLM
from jaxserve.engine.outputs.request_state import RequestState
from jaxserve.runner import runner
from scripts.benchmarks.host.part_clock import Clock

SHORTEST, LONGEST = 16, 48  # prompt lengths; they differ so that rows do not all need a new page in the same step
MARGIN = 8  # steps in addition to the measured ones: prompts, and the step in flight
PARTS = {
    "schedule": "schedule",
    "pack": "pack",
    "submit": "dispatch",
    "collect": "collect",
    "commit": "commit, deltas",
    "step": "outputs",
    "texts": "detokenize",
}
"""Name in the clock → name in tables. The dispatch is the submission without packing."""


@dataclass(frozen=True, slots=True)
class Case:
    """`num_rows` sequences decode while `num_waiting` requests are in the queue.

    is_streaming: texts are read after each step, as streams do; else once at the end.
    """

    num_rows: int
    num_waiting: int = 0
    is_streaming: bool = False

    def __str__(self) -> str:
        waiting = f", {self.num_waiting:,} waiting" if self.num_waiting else ""
        return f"{self.num_rows} rows{waiting}{', streaming' if self.is_streaming else ''}"


def measure(llm: LLM, case: Case, num_steps: int, seed: int) -> dict[str, Any]:
    """Microseconds per step: the median over `num_steps` of each part and of the total, and percentiles of the total.

    Every sequence samples at temperature 1, without log-probabilities, penalties or stop strings. Raises RuntimeError
    where a row ends during the measurement.
    """
    rng, clock = np.random.default_rng(seed), Clock()
    count = case.num_rows + case.num_waiting
    vocab_size = llm.parts.model.vocab_size
    prompts = [
        Prompt(None, rng.integers(0, vocab_size, n).tolist())
        for n in rng.integers(SHORTEST, LONGEST, count, endpoint=True).tolist()
    ]
    params = SamplingParams(temperature=1.0, max_tokens=num_steps + LONGEST + MARGIN, ignore_eos=True, seed=seed)
    outputs = llm.output_processor
    states = [outputs.add(request) for request in llm.admit(prompts, params)]
    running = states[: case.num_rows]
    try:
        while any(state.metrics.first_token_s is None for state in running):
            outputs.step()
        with (
            mock.patch.object(runner, "pack", clock.watch("pack", runner.pack)),
            instrumented_engine(llm.parts.engine, clock.watch),
        ):
            step, read, taken = clock.watch("step", outputs.step), clock.watch("texts", texts), []
            read(running)
            clock.take()
            for _ in range(num_steps):
                step()
                if case.is_streaming:
                    read(running)
                taken.append(clock.take())
            read(running)
            if any(state.is_finished for state in running):
                raise RuntimeError("a row ended during the measurement")
            rest_us = clock.take()["texts"] / num_steps
    finally:
        outputs.close(states)
    own = {name: np.array([each.get(part, 0.0) for each in taken]) for part, name in PARTS.items()}
    own[PARTS["texts"]] += rest_us
    totals = sum(own.values())
    return {
        "parts_us": {name: float(np.median(values)) for name, values in own.items()},
        "total_us": float(np.median(totals)),
        "p10_us": float(np.percentile(totals, 10)),
        "p90_us": float(np.percentile(totals, 90)),
    }


def texts(states: list[RequestState]) -> list[str]:
    return [sample.text for state in states for sample in state.samples]
