"""Wiring: the folder of JAX's persistent compilation cache, which is on by default: a second start takes seconds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from checkpoints.fetch.download_cache import cache_folder
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.startup.compiled_folder import CACHE

_config: Any = jax.config  # whose settings have no types


@dataclass(slots=True)
class _Choice:
    """chosen: the folder of this process's last engine. configured: JAX's own setting before the first engine."""

    chosen: str | None = None
    configured: str | None = None


_choice = _Choice()


def use_compilation_cache(config: EngineConfig) -> None:
    """Sets the folder that the options name, or that JAX is configured with (JAX_COMPILATION_CACHE_DIR), or the
    user's own."""
    current = _config.jax_compilation_cache_dir
    if current != _choice.chosen:
        _choice.configured = current
    if config.compiled is not None:
        folder = str(Path(config.compiled) / CACHE)
    else:
        folder = config.compilation_cache_dir or _choice.configured or str(cache_folder(None) / "compiled")
    if folder == current:
        return
    _config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()  # JAX opens the folder of its first use, and keeps it without this
    _choice.chosen = folder
    # All of a start-up's programs are kept, of which some 20 compile within 0.1 s each: together 0.4 s of a processor.
    _config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
