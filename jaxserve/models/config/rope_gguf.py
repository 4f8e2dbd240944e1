"""Host: rotary embedding from GGUF: header keys `<architecture>.rope.*`, and tables of factors as tensors."""

from collections.abc import Mapping
from dataclasses import replace

from jaxserve.core.errors import ConfigError
from jaxserve.models.config import rope_scaling as scaling
from jaxserve.models.config.common_sizes import Sizes
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.rope import Rope

FREQS, SHORT, LONG = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
TABLES = (FREQS, SHORT, LONG)
Tables = Mapping[str, tuple[float, ...]]


def read_rope(keys: ConfigKeys, sizes: Sizes, tables: Tables) -> tuple[Rope, Sizes]:
    """The rope shared by all layers of a model, and the sizes with its number of positions; takes every rope key."""
    rope, max_position = make_rope(keys, sizes.head_dim, sizes.max_position, tables)
    return rope, replace(sizes, max_position=max_position)


def make_rope(keys: ConfigKeys, head_dim: int, max_position: int, tables: Tables) -> tuple[Rope, int]:
    """(rope, number of positions). tables: by tensor name."""
    base = keys.take_float("rope.freq_base", 10_000.0)
    rotated = keys.take_int("rope.dimension_count", head_dim)
    dim = None if rotated == head_dim else rotated
    # As in llama.cpp, a factor without a type is linear.
    kind = keys.require("rope.scaling.type", ("none", "linear", "yarn", "longrope"), "linear")
    factor = keys.take_float("rope.scaling.factor", 1.0, zero=1.0)
    original = keys.take_int("rope.scaling.original_context_length", max_position)
    attention = keys.take_float("rope.scaling.attn_factor", 1.0)
    keys.take("rope.scaling.finetuned", None)  # a fact of the training, without effect
    if tables:
        if kind == "yarn" or factor != 1.0:
            raise ConfigError(f"the GGUF file scales rope by '{kind}' and by {', '.join(tables)}: only one is possible")
        if set(tables) == {FREQS}:
            return Rope(base, tables[FREQS], attention, dim), max_position
        if set(tables) != {SHORT, LONG}:
            raise ConfigError(f"the GGUF file has {', '.join(tables)}: {SHORT} and {LONG} go together, {FREQS} alone")
        return scaling.longrope(base, dim, tables[SHORT], tables[LONG], attention, original), max_position
    if kind == "longrope":
        raise ConfigError(f"the GGUF header says rope.scaling.type 'longrope', but the file has no {SHORT}")
    if kind == "yarn":
        rope = _yarn(keys, base, dim, rotated, factor, original, attention)
        return rope, max(max_position, int(factor * original))
    factors = None if kind == "none" or factor == 1.0 else (factor,) * (rotated // 2)
    return Rope(base, factors, attention, dim), max_position


def _yarn(
    keys: ConfigKeys, base: float, dim: int | None, rotated: int, factor: float, original: int, weight: float
) -> Rope:
    keys.require("rope.scaling.yarn_ext_factor", (1.0,), 1.0)
    all_dims = keys.take_float("rope.scaling.yarn_log_multiplier", None)
    attention = scaling.yarn_attention(factor) / (scaling.yarn_attention(factor, all_dims) if all_dims else 1.0)
    attention = keys.take_float("rope.scaling.yarn_attn_factor", attention) * weight
    fast = keys.take_float("rope.scaling.yarn_beta_fast", 32.0)
    slow = keys.take_float("rope.scaling.yarn_beta_slow", 1.0)
    return Rope(base, scaling.yarn_factors(base, rotated, factor, original, fast, slow), attention, dim)
