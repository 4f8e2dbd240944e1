"""Host: jaxserve, an LLM inference engine in JAX. The names below are imported when they are first used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxserve.core.errors import (
        AbortedError,
        ConfigError,
        EngineDeadError,
        FrozenBucketError,
        LateError,
        QueueFullError,
        RequestError,
    )
    from jaxserve.core.options.beam_search_params import BeamSearchParams
    from jaxserve.core.options.engine_config import EngineConfig
    from jaxserve.core.options.lora_request import LoRARequest
    from jaxserve.core.options.sampling_params import SamplingParams
    from jaxserve.core.options.structured_outputs import StructuredOutputsParams
    from jaxserve.engine.async_llm import AsyncLLM
    from jaxserve.engine.llm import LLM

__all__ = [
    "LLM",
    "AbortedError",
    "AsyncLLM",
    "BeamSearchParams",
    "ConfigError",
    "EngineConfig",
    "EngineDeadError",
    "FrozenBucketError",
    "LateError",
    "LoRARequest",
    "QueueFullError",
    "RequestError",
    "SamplingParams",
    "StructuredOutputsParams",
]
__version__ = "0.1.0"

_HOMES = {
    "LLM": "jaxserve.engine.llm",
    "AbortedError": "jaxserve.core.errors",
    "AsyncLLM": "jaxserve.engine.async_llm",
    "BeamSearchParams": "jaxserve.core.options.beam_search_params",
    "ConfigError": "jaxserve.core.errors",
    "EngineConfig": "jaxserve.core.options.engine_config",
    "EngineDeadError": "jaxserve.core.errors",
    "FrozenBucketError": "jaxserve.core.errors",
    "LateError": "jaxserve.core.errors",
    "LoRARequest": "jaxserve.core.options.lora_request",
    "QueueFullError": "jaxserve.core.errors",
    "RequestError": "jaxserve.core.errors",
    "SamplingParams": "jaxserve.core.options.sampling_params",
    "StructuredOutputsParams": "jaxserve.core.options.structured_outputs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jaxserve' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
