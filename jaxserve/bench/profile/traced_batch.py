"""Wiring: what profiles of a batch consist of: its steps, a trace around some of them, and times by scope."""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxserve.bench.profile.profiler_trace import Trace
from jaxserve.bench.profile.scopes import read_scopes
from jaxserve.bench.profile.trace_times import device_times
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.engine.inputs.prompt import read_prompts
from jaxserve.engine.loop.step_stats import Observer
from jaxserve.engine.outputs.request_state import RequestState

if TYPE_CHECKING:
    from jaxserve.engine.llm import LLM


@contextmanager
def batch_under_way(
    llm: "LLM", prompts: Sequence[Any], params: SamplingParams | Sequence[SamplingParams], observer: Observer
) -> Generator[None]:
    """Inside the context the engine has these requests, which the caller's steps advance; at its end, none of them.

    prompts, params: as `LLM.generate` takes them.
    """
    requests, states = llm.admit(read_prompts(prompts), params), list[RequestState]()
    outputs, engine = llm.output_processor, llm.parts.engine
    engine.observer = observer
    try:
        for request in requests:
            states.append(outputs.add(request))
        yield
    finally:
        engine.observer = None
        outputs.close(states)


def device_trace(folder: Path) -> AbstractContextManager[Any]:
    """A context whose operations the profiler writes to a folder."""
    import jax

    profiler: Any = jax.profiler
    settings = profiler.ProfileOptions()
    settings.python_tracer_level = 0  # an event per Python call would slow the host down many times
    return profiler.trace(str(folder), profiler_options=settings)


def times_of_programs(llm: "LLM", trace: Trace) -> list[dict[str, Any]]:
    """`device_times` of the engine's programs."""
    return device_times(trace, {name: read_scopes(e.as_text()) for name, e in llm.parts.runner.executables.items()})
