"""Host: the parts of a step of `OutputProcessor`, and an engine whose parts something watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PARTS = {
    "step": "texts, and what the engine does between its parts",
    "schedule": "plan the next step",
    "submit": "the rest of handing it over: edits, forks, the copy of its output",
    "pack": "write the plan into the buffer",
    "dispatch": "call the executable",
    "wait": "for the device",
    "collect": "read its output",
    "commit": "append tokens, end sequences",
}
"""By name, what each does apart from those within it."""

# Makes of a part's name and function what is called in its place.
Watch = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class Watched:
    """Stands for `inner`, with `methods` that are watched; everything else is as it was."""

    def __init__(self, inner: Any, watch: Watch, *methods: str):
        self._inner = inner
        self._methods = {name: watch(name, getattr(inner, name)) for name in methods}

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._inner, name)


@contextmanager
def watched_engine(engine: Any, watch: Watch) -> Iterator[None]:
    """While entered, the engine's planning, submission, collection and commits are watched."""
    scheduler, runner = engine.scheduler, engine.runner
    engine.scheduler = Watched(scheduler, watch, "schedule", "commit")
    engine.runner = Watched(runner, watch, "submit", "collect")
    try:
        yield
    finally:
        engine.scheduler, engine.runner = scheduler, runner
