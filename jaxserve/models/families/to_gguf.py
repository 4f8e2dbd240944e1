"""Host: `to_gguf`: the header of a GGUF file of a model, in the keys that `registry.from_gguf` and llama.cpp read.

The keys are those of the format's specification (ggml, docs/gguf.md). The header is read again before it is used: a
model that it does not describe, such as one with windows where GGUF has no key for them, is refused by name.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from reprlib import repr as shortened
from typing import Any, cast

import numpy as np

from jaxserve.core.errors import ConfigError
from jaxserve.models.config import rope_gguf
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.config.rope import Rope
from jaxserve.models.families import registry

WITH_TABLES = ("llama", "phi3")  # llama.cpp reads tables of rope factors for these
WITH_ROTATED = ("llama", "phi3")  # these always say how much of a head is rotated
TOLERANCE = 1e-6  # numbers of the header are float32
# What ends a text comes with the tokenizer, and the dtype with the tensors.
_NOT_OF_HEADER = frozenset({"bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype"})

Header = tuple[dict[str, Any], dict[str, np.ndarray]]


def to_gguf(config: ModelConfig) -> Header:
    """(metadata, tensors of rope factors [dim / 2] by name). Raises ConfigError for a model that has no such form."""
    by_family = {family: name for name, family in registry.GGUF_FAMILIES.items()} | {"mistral": "llama"}
    if config.family not in by_family:
        raise ConfigError(f"models of the family {config.family!r} have no GGUF form that jaxserve reads", "model")
    name = by_family[config.family]
    values, tables = _values(name, config)
    metadata = {"general.architecture": name} | {f"{name}.{key}": value for key, value in values.items()}
    _check(config, metadata, tables)
    return metadata, tables


def _values(name: str, config: ModelConfig) -> Header:
    """Keys without the architecture."""
    windows = {kind.attention.window for kind in config.kinds} - {None}
    of_windows = {kind.attention.rope for kind in config.kinds if kind.attention.window is not None}
    attention = next((kind.attention for kind in config.kinds if kind.attention.window is None), None)
    attention = attention or config.kinds[0].attention
    of_rope, tables = _rope(name, config, attention.rope)
    values: dict[str, Any] = {
        "context_length": config.max_position,
        "embedding_length": config.d_model,
        "block_count": config.num_layers,
        "feed_forward_length": config.common(lambda kind: kind.mlp.width),
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "vocab_size": config.vocab_size,
        **({"attn_logit_softcapping": attention.softcap} if attention.softcap else {}),
        **({"final_logit_softcapping": config.final_softcap} if config.final_softcap else {}),
        **of_rope,
    }
    for window in windows:  # of all kinds the same, or the header is refused
        values["attention.sliding_window"] = window
    for rope in of_windows - {attention.rope}:
        values["rope.freq_base_swa"] = rope.base
    return values, tables


def _rope(name: str, config: ModelConfig, rope: Rope) -> Header:
    rotated = rope.dim or config.head_dim
    values: dict[str, Any] = {"rope.freq_base": rope.base}
    if rope.dim is not None or name in WITH_ROTATED:
        values["rope.dimension_count"] = rotated
    if rope.attention_factor != 1.0:
        values["rope.scaling.attn_factor"] = rope.attention_factor
    if rope.long is None and (rope.factors is None or len(set(rope.factors)) == 1):
        if rope.factors is not None:
            values |= {"rope.scaling.type": "linear", "rope.scaling.factor": rope.factors[0]}
        return values, {}
    if name not in WITH_TABLES:
        raise ConfigError(f"GGUF files of the architecture {name!r} have no tables of rope factors", "model")
    short = rope.factors or (1.0,) * (rotated // 2)
    if rope.long is None and name != "phi3":
        return values, {rope_gguf.FREQS: np.array(short, np.float32)}
    if rope.long is not None:
        values["rope.scaling.original_context_length"] = rope.long.original_len
    long = short if rope.long is None else rope.long.factors
    return values, {
        rope_gguf.SHORT: np.array(short, np.float32),
        rope_gguf.LONG: np.array(long, np.float32),
    }


def _check(config: ModelConfig, metadata: Mapping[str, Any], tables: Mapping[str, np.ndarray]) -> None:
    factors = {name: tuple(map(float, table)) for name, table in tables.items()}
    try:
        read = registry.from_gguf(metadata, is_tied=config.is_tied, rope_tables=factors)
    except ConfigError as error:
        raise ConfigError(f"the model has no GGUF form that jaxserve reads: {error}", "model") from error
    # A model of Mistral's form without windows is a Llama in GGUF.
    wanted, found = registry.to_hf(config), registry.to_hf(replace(read, family=config.family))
    for key in sorted(wanted.keys() - _NOT_OF_HEADER):
        if not _is_alike(wanted[key], found[key]):
            message = (
                f"a GGUF header cannot say {key} = {shortened(wanted[key])}: it is read as {shortened(found[key])}"
            )
            raise ConfigError(message, "model")


def _is_alike(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(wanted, found, rel_tol=TOLERANCE)
    if isinstance(wanted, dict) and isinstance(found, dict):
        ours, theirs = cast("dict[str, Any]", wanted), cast("dict[str, Any]", found)
        return ours.keys() == theirs.keys() and all(_is_alike(ours[key], theirs[key]) for key in ours)
    if isinstance(wanted, list) and isinstance(found, list):
        first, second = cast("list[Any]", wanted), cast("list[Any]", found)
        return len(first) == len(second) and all(map(_is_alike, first, second))
    return wanted == found
