"""Host: jaxserve, an LLM inference engine in JAX. The names below are imported when they are first used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxserve.core.errors import QueueFullError
    from jaxserve.core.options.beam_search_params import BeamSearchParams
    from jaxserve.core.options.engine_config import EngineConfig
    from jaxserve.core.options.sampling_params import SamplingParams
    from jaxserve.engine.async_llm import AsyncLLM
    from jaxserve.engine.llm import LLM

__all__ = ["LLM", "AsyncLLM", "BeamSearchParams", "EngineConfig", "QueueFullError", "SamplingParams"]
__version__ = "0.1.0"

_HOMES = {
    "AsyncLLM": "jaxserve.engine.async_llm",
    "BeamSearchParams": "jaxserve.core.options.beam_search_params",
    "LLM": "jaxserve.engine.llm",
    "EngineConfig": "jaxserve.core.options.engine_config",
    "QueueFullError": "jaxserve.core.errors",
    "SamplingParams": "jaxserve.core.options.sampling_params",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jaxserve' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
