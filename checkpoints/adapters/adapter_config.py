"""Host: `AdapterConfig`: adapter_config.json as PEFT writes it.

Every key is used, known to change nothing, or refused by name.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from checkpoints.errors import CheckpointError
from checkpoints.formats.bounded_json import read_object

CONFIG = "adapter_config.json"
ALL_LINEAR = "all-linear"
_MAX_BYTES = 1_000_000
_MAX_NUMBER = 2**31
# Of training, of how matrices were initialized, and of where the file comes from.
_INERT = frozenset(
    """auto_mapping base_model_name_or_path corda_config ensure_weight_tying eva_config inference_mode lora_dropout
    lora_ga_config loftq_config megatron_core peft_version qalora_group_size revision runtime_config
    velora_config""".split()
)
_BASE_CHANGES = (
    "changes the weights of the model: save the adapter for the unchanged model (PEFT: save_pretrained with "
    "path_initial_model_for_weight_conversion)"
)
_TASKS = ("CAUSAL_LM", "FEATURE_EXTRACTION")
_PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal", "mica")
_NOT_BUILT = {
    "modules_to_save": "holds whole weights of the model, of which one engine has one: merge it into the model",
    "use_dora": "is DoRA, which rescales the model's weights: merge it into the model (PEFT: merge_and_unload)",
    "lora_bias": "adds biases, which are not supported: merge it into the model (PEFT: merge_and_unload)",
    "fan_in_fan_out": "is for layers whose weights are stored transposed (Conv1D), which no supported model has",
    "trainable_token_indices": "changes rows of the embedding: merge it into the model (PEFT: merge_and_unload)",
    "target_parameters": "adapts parameters that are not linear layers, such as experts, which is not supported",
    "layer_replication": "gives the model further layers: merge it into the model first",
    "megatron_config": "is of Megatron's divided layers: save it for the whole layers",
}


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """rank, alpha: of modules that no expression of rank_pattern, alpha_pattern matches. targets, excluded: ends of
    names of modules, or one regular expression; `ALL_LINEAR` stands for all. layers: of the model; None: all."""

    rank: int
    alpha: float
    is_rank_stabilized: bool
    rank_pattern: dict[str, int]
    alpha_pattern: dict[str, float]
    targets: tuple[str, ...] | str
    excluded: tuple[str, ...] | str
    layers: tuple[int, ...] | None

    def scale(self, rank: int, alpha: float) -> float:
        """What b · a is multiplied by: alpha / rank, or alpha / sqrt(rank) (Kalajdzievski, arXiv 2312.03732)."""
        return alpha / (math.sqrt(rank) if self.is_rank_stabilized else rank)


def read_adapter_config(folder: Path) -> AdapterConfig:
    """Of an adapter's folder. Raises `CheckpointError` for a key that is malformed, or that is not honored."""
    path = folder / CONFIG
    keys = _Keys(read_object(path, _MAX_BYTES), str(path))
    keys.require("peft_type", lambda value: value == "LORA", "only adapters of the type LORA are supported")
    keys.require("task_type", lambda value: value is None or value in _TASKS, f"is none of {', '.join(_TASKS)}")
    keys.require("bias", lambda value: value in (None, "none"), "changes biases of the model: merge it into the model")
    keys.require("init_lora_weights", lambda value: value is None or value in _PLAIN_STARTS, _BASE_CHANGES)
    lists = keys.names("layers_pattern")
    if lists and lists != "layers" and "layers" not in tuple(lists):
        raise keys.fault("layers_pattern", lists, "must name the model's list of layers, 'layers'")
    config = AdapterConfig(
        _rank(keys, "r", keys.take("r", 8)),
        _number(keys, "lora_alpha", keys.take("lora_alpha", 8)),
        keys.flag("use_rslora"),
        {key: _rank(keys, "rank_pattern", value) for key, value in keys.table("rank_pattern").items()},
        {key: _number(keys, "alpha_pattern", value) for key, value in keys.table("alpha_pattern").items()},
        keys.names("target_modules"),
        keys.names("exclude_modules"),
        _layers(keys),
    )
    if not config.targets:
        raise keys.fault("target_modules", config.targets, "must name the modules that the adapter adds to")
    if isinstance(config.targets, str) and config.layers is not None:
        raise keys.fault("layers_to_transform", list(config.layers), "goes with target_modules that is a list only")
    keys.finish()
    return config


class _Keys:
    """A configuration being read: keys are taken, then `finish` refuses the rest."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self._where = dict(values), where

    def fault(self, key: str, value: Any, fault: str) -> CheckpointError:
        return CheckpointError(f"{self._where}: {key}={repr(value)[:200]} {fault}")

    def take(self, key: str, default: Any) -> Any:
        """The value; the default where it is absent or null."""
        value = self._values.pop(key, None)
        return default if value is None else value

    def require(self, key: str, accept: Callable[[Any], bool], fault: str) -> None:
        value = self._values.pop(key, None)
        if isinstance(value, (dict, list)) or not accept(value):
            raise self.fault(key, value, fault)

    def flag(self, key: str) -> bool:
        value = self.take(key, False)
        if not isinstance(value, bool):
            raise self.fault(key, value, "must be true or false")
        return value

    def table(self, key: str) -> dict[str, Any]:
        value = self.take(key, {})
        if not isinstance(value, dict):
            raise self.fault(key, value, "must be an object")
        return cast("dict[str, Any]", value)

    def names(self, key: str) -> tuple[str, ...] | str:
        value = self.take(key, [])
        if isinstance(value, str):
            return ALL_LINEAR if value.lower() == ALL_LINEAR else value
        names: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
        if not all(isinstance(name, str) for name in names):
            raise self.fault(key, value, "must be a list of names, or one regular expression")
        return tuple(names)

    def finish(self) -> None:
        for key, value in self._values.items():
            if key not in _INERT and value not in (None, False, 0, "", [], {}):
                raise self.fault(key, value, _NOT_BUILT.get(key, "is not supported"))


def _rank(keys: _Keys, key: str, value: Any) -> int:
    if type(value) is not int or not 0 < value < _MAX_NUMBER:
        raise keys.fault(key, value, "must hold ranks, positive integers")
    return value


def _number(keys: _Keys, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MAX_NUMBER:
        raise keys.fault(key, value, "must hold finite numbers")
    return float(value)


def _layers(keys: _Keys) -> tuple[int, ...] | None:
    value = keys.take("layers_to_transform", None)
    layers: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    if value is None or not layers:
        return None
    if not all(type(layer) is int and layer >= 0 for layer in layers):
        raise keys.fault("layers_to_transform", value, "must hold numbers of layers")
    return tuple(layers)
