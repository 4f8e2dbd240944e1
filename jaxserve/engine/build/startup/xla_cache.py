"""Wiring: the persistent compilation cache, on by default, so that the next process starts in seconds."""

from dataclasses import dataclass
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from checkpoints.fetch.download_cache import cache_folder
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.startup.program_store import CACHE


@dataclass(slots=True)
class _Choice:
    """folder: what an engine of this process chose last. told: what JAX had been told by others before."""

    folder: str | None = None
    told: str | None = None


_choice = _Choice()


def use_compilation_cache(config: EngineConfig) -> None:
    """The folder that the options name, or that JAX was told of (JAX_COMPILATION_CACHE_DIR), or the user's own."""
    current = jax.config.jax_compilation_cache_dir
    if current != _choice.folder:
        _choice.told = current
    if config.compiled is not None:
        folder = str(Path(config.compiled) / CACHE)
    else:
        folder = config.compilation_cache_dir or _choice.told or str(cache_folder(None) / "compiled")
    if folder == current:
        return
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()  # JAX opens one folder, at its first use, and would stay with it
    _choice.folder = folder
    # All of a start-up's programs are kept, of which some 20 compile within 0.1 s each: together 0.4 s of a processor.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
