"""Wiring: `model_fits`: what fits on which devices, each with the packing that its engines would have."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from jaxserve.analysis.device_fit import ContextRange, DeviceFit, fit
from jaxserve.analysis.sharded_sizes import LocalSizes, device_share, possible_sizes
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.device_specs import DEVICES, NAMES_BY_DEVICE_KIND
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build import engine_sizes, kv_pool_size
from jaxserve.engine.build.model_source import ModelSource, choose_dtype
from jaxserve.engine.build.packing.block_products import DeviceKind
from jaxserve.engine.build.packing.choose_packing import with_packing

FIT_LENGTHS = (4096, 32_768)
KINDS = {name: DeviceKind("tpu" if "TPU" in kind else "gpu", kind) for kind, name in NAMES_BY_DEVICE_KIND.items()}
"""By the name in `DEVICES`."""


def model_fits(
    config: EngineConfig, source: ModelSource, max_len: int, local: LocalSizes | None, asked: int | None
) -> Iterator[DeviceFit]:
    """This machine's devices first, then the named ones; each in numbers that grow. Devices whose engines refuse the
    option `quantization` are left out. source: as the checkpoint describes it."""
    lengths = [n for n in FIT_LENGTHS if n <= max_len] or [max_len]
    utilization = kv_pool_size.memory_share(config)
    dtype, sizes = choose_dtype(config.dtype, source.model.dtype), possible_sizes(source.model, asked)

    @cache
    def packed(kind: DeviceKind, num_devices: int) -> ModelSource | None:
        try:
            return with_packing(replace(config, tensor_parallel_size=num_devices), source, kind)
        except ConfigError:
            return None

    if local is not None:
        kind, page_size = DeviceKind(local.platform, local.device.name), engine_sizes.page_size(config, local.platform)
        groups, most = source.model.kv_groups(page_size), local.max_kv_bytes(config)
        for n in sizes:
            if n <= local.num_devices and (own := packed(kind, n)) is not None:
                share = device_share(config, own.model, dtype, n, page_size, local.platform, own.packing)
                contexts = _contexts(config, max_len, local.platform)
                yield fit(
                    local.device, share, groups, lengths, contexts, memory_utilization=utilization, max_kv_bytes=most
                )
    page_size = engine_sizes.page_size(config, "tpu")
    groups, contexts = source.model.kv_groups(page_size), _contexts(config, max_len, "tpu")
    for device in DEVICES:
        for n in sizes:
            if (own := packed(KINDS[device.name], n)) is not None:
                share = device_share(config, own.model, dtype, n, page_size, "tpu", own.packing)
                yield fit(device, share, groups, lengths, contexts, memory_utilization=utilization)


def _contexts(config: EngineConfig, max_len: int, platform: str) -> ContextRange:
    _, max_tokens = engine_sizes.max_rows_and_tokens(config, platform)
    return ContextRange(config.max_model_len or 1, max_len, min(config.max_chunk_tokens or max_tokens, max_tokens))
