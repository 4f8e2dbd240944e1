"""JAX's compilation cache in tests that point it elsewhere, and counts of its use."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jax.experimental.compilation_cache import compilation_cache

NAMES = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@contextmanager
def cache_restored() -> Iterator[None]:
    """Restores JAX's present folder at the end of the block, whatever folder engines choose within it."""
    before = {name: getattr(jax.config, name) for name in NAMES}
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


@contextmanager
def cache_events() -> Iterator[Counter[str]]:
    """Counts the programs found in the cache within the block ("cache_hits"), and those not found ("cache_misses")."""
    found: Counter[str] = Counter()

    def listen(event: str, **_) -> None:
        if event.startswith("/jax/compilation_cache/"):
            found[event.rpartition("/")[2]] += 1

    jax.monitoring.register_event_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_listener(listen)
