"""Host: rotary-embedding settings as Hugging Face spells them, old (`rope_theta`, `rope_scaling`) and new
(`rope_parameters`)."""

from collections.abc import Mapping
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.models.config import Rope, llama3_factors
from jaxserve.models.keys import Keys

SOURCE = "config.json (rope settings)"


def read_rope(keys: Keys, head_dim: int, default_base: float = 10000.0) -> Rope:
    """The one rope of a model whose layers all rotate alike; takes every rope key."""
    base = keys.take("rope_theta", default_base)
    scaling, parameters = keys.take_mapping("rope_scaling"), keys.take_mapping("rope_parameters")
    return make_rope({"rope_theta": base, **scaling, **parameters}, head_dim)


def make_rope(values: Mapping[str, Any], head_dim: int) -> Rope:
    """Rope from one flat mapping: `rope_theta`, `rope_type` (or `type`) and that type's own keys."""
    keys = Keys(values, SOURCE)
    base = float(keys.take("rope_theta"))
    legacy = keys.take("type", "default")
    kind = keys.take("rope_type", legacy)
    keys.require("partial_rotary_factor", (1.0,), 1.0)
    factors = None
    if kind == "linear":
        factors = (float(keys.take("factor")),) * (head_dim // 2)
    elif kind == "llama3":
        factors = llama3_factors(
            base,
            head_dim,
            float(keys.take("factor")),
            float(keys.take("low_freq_factor")),
            float(keys.take("high_freq_factor")),
            int(keys.take("original_max_position_embeddings")),
        )
    elif kind != "default":
        raise ConfigError(f"{SOURCE}: rope_type '{kind}' is not supported (default, linear, llama3)", param="rope_type")
    keys.finish()
    return Rope(base, factors)
