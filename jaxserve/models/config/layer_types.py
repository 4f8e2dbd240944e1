"""Host: layer kinds (windowed and full attention) from `layer_types` and `sliding_window` of a configuration."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.common_sizes import Sizes
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.layer_kind import LayerKind
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.config.rope import Rope

LOCAL, GLOBAL = "sliding_attention", "full_attention"


def uniform(whole: LayerKind, window: int | None, sizes: Sizes) -> list[LayerKind]:
    """The kinds of identical layers; a window at least as long as the context is no window."""
    is_windowed = window is not None and window < sizes.max_position
    return by_type([LOCAL if is_windowed else GLOBAL] * sizes.num_layers, whole, window)


def by_type(
    layer_types: Sequence[str], whole: LayerKind, window: int | None, local_rope: Rope | None = None
) -> list[LayerKind]:
    """Each layer's kind: `whole`, or the same with a window, and with a rope of its own if there is one."""
    if LOCAL in layer_types and window is None:
        raise ConfigError(f"layer_types has '{LOCAL}', but there is no sliding_window", param="sliding_window")
    attention = replace(whole.attention, window=window, rope=local_rope or whole.attention.rope)
    kinds = {LOCAL: replace(whole, name="local", attention=attention), GLOBAL: whole}
    return [kinds[name] for name in layer_types]


def read_window(keys: ConfigKeys, name: str) -> int | None:
    """A window in tokens; None if the key is absent or 0."""
    return keys.take_int(name, 0, minimum=0) or None


def read_layer_types(keys: ConfigKeys, default: Sequence[str]) -> Sequence[str]:
    """`layer_types`, or `default` if absent."""
    layer_types = keys.take("layer_types", default)
    items = cast(list[Any], layer_types) if isinstance(layer_types, list) else [layer_types]
    if unknown := [item for item in items if item not in (LOCAL, GLOBAL)]:
        raise ConfigError(f"config.json: layer_types has {unknown[0]!r}, which is not supported", param="layer_types")
    return items


def hf_layer_types(config: ModelConfig) -> dict[str, Any]:
    """`layer_types` and `sliding_window` of a model."""
    windows = [kind.attention.window for kind in config.kinds]
    return {
        "layer_types": [GLOBAL if windows[k] is None else LOCAL for k in config.layer_kinds],
        "sliding_window": next((w for w in windows if w is not None), None),
    }
