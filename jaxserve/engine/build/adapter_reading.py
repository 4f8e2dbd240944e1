"""Wiring: the adapters of an engine: how they lie in its pool, and how their files become pages."""

from functools import partial

import numpy as np

from checkpoints.adapters.low_rank import AdapterWeights
from checkpoints.adapters.read_adapter import read_adapter
from jaxserve.core.hardware.mesh import num_shards
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.lora.adapter_store import AdapterStore
from jaxserve.lora.pack_adapter import DevicePart, PackTarget, pack_adapter
from jaxserve.lora.packed_adapter import PackedAdapter
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.layer_adapters import adapter_layout
from jaxserve.models.model_settings import Settings
from jaxserve.runner.programs.programs import Programs
from pallas_kernels.lora_matmul.adapter_layout import AdapterLayout


def choose_layout(config: EngineConfig, settings: Settings) -> AdapterLayout | None:
    """How adapters lie in the pool; None: the engine has none."""
    if not config.enable_lora:
        return None
    kv = settings.layout
    return adapter_layout(
        settings.config, settings.mesh, kv, max_rank=config.max_lora_rank, num_places=config.max_loras
    )


def max_adapter_pages(programs: Programs) -> int:
    """Pages of an adapter of the highest rank, in all KV groups; 0 where there are no adapters."""
    layout = programs.settings.adapters
    return 0 if layout is None else layout.max_pages * programs.groups.num_groups


def make_adapter_store(config: EngineConfig, programs: Programs) -> AdapterStore | None:
    """The adapters of an engine; None where it has none."""
    if programs.settings.adapters is None:
        return None
    read = partial(_read, config, programs.settings.model.config, pack_target(programs))
    return AdapterStore(read, max_cpu_loras=config.max_cpu_loras)


def pack_target(programs: Programs) -> PackTarget:
    """What adapters are packed for: pages of the pool of these programs."""
    settings, layout = programs.settings.model, programs.settings.adapters
    assert layout is not None
    model, kv = settings.config, programs.layout
    groups = [start for start, _ in model.group_ranges]
    return PackTarget(
        layout=layout,
        layers=tuple((groups[layer.kind] + layer.group, layer.index_in_group) for layer in model.layer_table),
        num_groups=programs.groups.num_groups,
        layers_per_group=kv.layers_per_group,
        page_shape=kv.shape(1)[2:],
        dtype=np.dtype(kv.dtype),
        parts=tuple(device_parts(model, num_shards(settings.mesh, "kv_heads"))),
    )


def device_parts(model: ModelConfig, num_devices: int) -> list[dict[str, DevicePart]]:
    """Of each matrix the rows and columns of each device. KV heads are repeated where there are fewer than devices."""
    h, d = model.head_dim, np.arange(model.d_model)
    num_kv_heads = max(model.num_kv_heads, num_devices)
    width = model.common(lambda kind: kind.mlp.width)

    def part_of(size: int, device: int) -> np.ndarray:
        return np.arange(size).reshape(num_devices, -1)[device]

    def of_device(device: int) -> dict[str, DevicePart]:
        heads = part_of(model.num_heads * h, device)
        kv_heads = part_of(num_kv_heads, device) * model.num_kv_heads // num_kv_heads
        keys, mlp = (kv_heads[:, None] * h + np.arange(h)).reshape(-1), part_of(width, device)
        return {
            "q": DevicePart(d, heads),
            **dict.fromkeys(("k", "v"), DevicePart(d, keys)),
            "o": DevicePart(heads, d),
            **dict.fromkeys(("gate", "up"), DevicePart(d, mlp)),
            "down": DevicePart(mlp, d),
        }

    return list(map(of_device, range(num_devices)))


def matrix_shapes(model: ModelConfig) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of the matrices of a layer that adapters may have."""
    d, q, kv = model.d_model, model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    f = model.common(lambda kind: kind.mlp.width)
    return {
        "q": (q, d),
        **dict.fromkeys(("k", "v"), (kv, d)),
        "o": (d, q),
        **dict.fromkeys(("gate", "up"), (f, d)),
        "down": (d, f),
    }


def _read(
    config: EngineConfig, model: ModelConfig, target: PackTarget, request: LoRARequest
) -> tuple[int, PackedAdapter]:
    weights: AdapterWeights = read_adapter(
        request.lora_path,
        matrix_shapes(model),
        model.num_layers,
        config.max_lora_rank,
        token=config.hf_token,
        cache_dir=config.cache_dir,
    )
    return weights.rank, pack_adapter(weights, target)
