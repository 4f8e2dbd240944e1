"""Host: layer kinds (windowed and full attention) from `layer_types` and `sliding_window` of a configuration."""

from collections.abc import Sequence
from typing import Any, cast

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.model_config import LayerKind, ModelConfig, Rope

LOCAL, GLOBAL = "sliding_attention", "full_attention"


def one_kind(rope: Rope, window: int | None, num_layers: int, max_position: int) -> dict[str, Any]:
    """Fields of `ModelConfig` for identical layers. A window at least as long as the context is no window."""
    if window is not None and window >= max_position:
        window = None
    kind = LayerKind("global" if window is None else "local", rope, window)
    return {"kinds": (kind,), "layer_kinds": (0,) * num_layers}


def two_kinds(layer_types: Sequence[str], local: Rope, glob: Rope, window: int | None) -> dict[str, Any]:
    """Fields of `ModelConfig` for a list of layer types; a kind without layers is omitted."""
    if LOCAL in layer_types and window is None:
        raise ConfigError(f"layer_types has '{LOCAL}', but there is no sliding_window", param="sliding_window")
    kinds = {LOCAL: LayerKind("local", local, window), GLOBAL: LayerKind("global", glob)}
    used = [name for name in kinds if name in layer_types]
    return {
        "kinds": tuple(kinds[name] for name in used),
        "layer_kinds": tuple(used.index(name) for name in layer_types),
    }


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
    windows = [kind.window for kind in config.kinds]
    return {
        "layer_types": [GLOBAL if windows[k] is None else LOCAL for k in config.layer_kinds],
        "sliding_window": next((w for w in windows if w is not None), None),
    }
