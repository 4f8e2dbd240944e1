"""Host: rotary embedding from config.json, in the old format (`rope_theta`, `rope_scaling`) and the new one
(`rope_parameters`)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.models.config import rope_scaling as scaling
from jaxserve.models.config.common_sizes import Sizes
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.rope import Rope

SOURCE = "config.json (rope settings)"


def read_rope(keys: ConfigKeys, sizes: Sizes, default_base: float = 10_000.0) -> tuple[Rope, Sizes]:
    """The rope shared by all layers of a model, and the sizes with its number of positions; takes every rope key."""
    values = {
        "rope_theta": keys.take("rope_theta", default_base),
        "partial_rotary_factor": keys.take("partial_rotary_factor", None),
        **keys.take_mapping("rope_scaling"),
        **keys.take_mapping("rope_parameters"),
    }
    original_len = keys.take("original_max_position_embeddings", None)
    rope, max_position = make_rope(values, sizes.head_dim, sizes.max_position, original_len)
    return rope, replace(sizes, max_position=max_position)


def make_rope(
    values: Mapping[str, Any], head_dim: int, max_position: int, original_len: int | None = None
) -> tuple[Rope, int]:
    """(rope, number of positions) from one flat mapping: `rope_theta`, `rope_type` (or `type`) and the type's own keys.

    original_len: from outside the mapping, overrides the mapping's value. The positions exceed `max_position` where
    YaRN extends a configuration that states the original context.
    """
    keys = ConfigKeys(values, SOURCE)
    base = keys.take_float("rope_theta")
    legacy = keys.take("type", "default")
    kind = keys.take("rope_type", legacy)
    part = keys.take_float("partial_rotary_factor", 1.0)
    if part > 1.0:
        raise ConfigError(f"{SOURCE}: partial_rotary_factor={part} must be at most 1", "partial_rotary_factor")
    rotated = int(head_dim * part)
    dim = None if rotated == head_dim else rotated
    positions = max_position
    if kind == "default":
        rope = Rope(base, dim=dim)
    elif kind == "linear":
        rope = Rope(base, (keys.take_float("factor"),) * (rotated // 2), dim=dim)
    elif kind == "llama3":
        factor, low, high = (keys.take_float(f"{name}factor") for name in ("", "low_freq_", "high_freq_"))
        original = keys.take_int("original_max_position_embeddings")
        rope = Rope(base, scaling.llama3_factors(base, rotated, factor, low, high, original), dim=dim)
    elif kind in ("yarn", "longrope", "su"):
        original = keys.take_int("original_max_position_embeddings", max_position)
        original = original if original_len is None else original_len
        factor = keys.take_float("factor", max_position / original)
        if kind == "yarn":
            rope = _yarn(keys, base, dim, rotated, factor, original)
            positions = max(max_position, int(factor * original))
        else:
            attention = keys.take_float("attention_factor", scaling.longrope_attention(factor, original))
            short, long = keys.take_floats("short_factor"), keys.take_floats("long_factor")
            rope = scaling.longrope(base, dim, short, long, attention, original)
    else:
        known = "default, linear, llama3, yarn, longrope"
        raise ConfigError(f"{SOURCE}: rope_type '{kind}' is not supported ({known})", param="rope_type")
    keys.finish()
    return rope, positions


def _yarn(keys: ConfigKeys, base: float, dim: int | None, rotated: int, factor: float, original_len: int) -> Rope:
    mscale, mscale_all = keys.take_float("mscale", None), keys.take_float("mscale_all_dim", None)
    attention = scaling.yarn_attention(factor)
    if mscale and mscale_all:
        attention = scaling.yarn_attention(factor, mscale) / scaling.yarn_attention(factor, mscale_all)
    attention = keys.take_float("attention_factor", attention)
    fast, slow = keys.take_float("beta_fast", 32.0), keys.take_float("beta_slow", 1.0)
    is_truncated = keys.require("truncate", (True, False), True)
    factors = scaling.yarn_factors(base, rotated, factor, original_len, fast, slow, is_truncated)
    return Rope(base, factors, attention, dim)


def hf_rope(rope: Rope, head_dim: int, max_position: int) -> dict[str, Any]:
    """The mapping from which `make_rope` and transformers restore this rope.

    Tables of factors are written as `longrope`, which lists all factors, whatever type they come from.
    """
    values: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.base}
    rotated = head_dim
    if rope.dim is not None:
        part = rope.dim / head_dim
        # Readers round down: 102 / 168 * 168 is a little less than 102.
        values["partial_rotary_factor"] = part if int(head_dim * part) == rope.dim else math.nextafter(part, 1.0)
        rotated = rope.dim
    if rope.factors is None and rope.long is None and rope.attention_factor == 1.0:
        return values
    short = rope.factors or (1.0,) * (rotated // 2)
    if rope.long is None and rope.attention_factor == 1.0 and len(set(short)) == 1:
        return {**values, "rope_type": "linear", "factor": short[0]}
    return {
        **values,
        "rope_type": "longrope",
        "short_factor": list(short),
        "long_factor": list(rope.long.factors if rope.long else short),
        "factor": 1.0,
        "attention_factor": rope.attention_factor,
        "original_max_position_embeddings": rope.long.original_len if rope.long else max_position,
    }
