"""Wiring: the persistent compilation cache, on by default, so that the next process starts in seconds."""

import jax

from checkpoints.fetch.cache import cache_folder
from jaxserve.core.config import EngineConfig

MIN_COMPILE_S = 0.1  # the many small programs of a start-up are worth keeping too


def use_compilation_cache(config: EngineConfig) -> None:
    """The folder that the option names, or that JAX was told of (JAX_COMPILATION_CACHE_DIR), or the user's own."""
    if config.compilation_cache_dir is None and jax.config.jax_compilation_cache_dir is not None:
        return
    folder = config.compilation_cache_dir or str(cache_folder(None) / "compiled")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_S)
