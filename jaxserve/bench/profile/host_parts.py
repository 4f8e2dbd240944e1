"""Host: the parts of a host step, and a context in which each call of a part is instrumented."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

PARTS = {
    "step": "update texts, and the engine's work between its parts",
    "schedule": "plan the next step",
    "submit": "the rest of submission: edits, forks, the copy of the output",
    "pack": "write the plan into the buffer",
    "dispatch": "call the executable",
    "wait": "wait for the device",
    "collect": "read the output",
    "commit": "append tokens, end sequences",
}
"""Part → its work, without the parts inside it."""

# (name of a part, its function) → the function that is called instead
Instrument = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class Instrumented:
    """A proxy of `inner` with instrumented `methods`."""

    def __init__(self, inner: Any, instrument: Instrument, *methods: str):
        self._inner = inner
        self._methods = {name: instrument(name, getattr(inner, name)) for name in methods}

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._inner, name)


@contextmanager
def instrumented_engine(engine: Any, instrument: Instrument) -> Generator[None]:
    """Instruments the engine's scheduling, submission, collection and commits inside the context."""
    scheduler, runner = engine.scheduler, engine.runner
    engine.scheduler = Instrumented(scheduler, instrument, "schedule", "commit")
    engine.runner = Instrumented(runner, instrument, "submit", "collect")
    try:
        yield
    finally:
        engine.scheduler, engine.runner = scheduler, runner
