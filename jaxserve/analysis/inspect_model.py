"""Wiring: what is known of a model before its weights are read: architecture, bytes, and the devices it fits on."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from checkpoints.formats import orbax_folder
from checkpoints.open_header import open_header
from checkpoints.sources import hub_repo
from jaxserve.analysis.device_fit import DeviceFit
from jaxserve.analysis.kv_info import KVInfo, describe_kv
from jaxserve.analysis.model_fits import model_fits
from jaxserve.analysis.model_info import Architecture, PartInfo, architecture, parameter_parts
from jaxserve.analysis.sharded_sizes import LocalSizes
from jaxserve.analysis.tokenizer_info import TokenizerInfo, describe_tokenizer
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build import engine_sizes, kv_pool_size
from jaxserve.engine.build.model_source import ModelSource, choose_dtype, is_only_shape, open_model
from jaxserve.engine.build.packing.block_products import DeviceKind
from jaxserve.engine.build.packing.choose_packing import with_packing
from jaxserve.kv.pool_layout import page_layout
from jaxserve.runner.load_weights import read_config


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of `jaxserve inspect` in plain values. stored_types: bytes of the file by tensor type."""

    model: str
    dtype: str
    quantization: str | None
    max_model_len: int
    architecture: Architecture
    parts: tuple[PartInfo, ...]
    num_params: int
    stored_bytes: int | None
    stored_types: dict[str, int]
    loaded_bytes: int
    kv: KVInfo
    tokenizer: TokenizerInfo | None
    memory_utilization: float
    fits: tuple[DeviceFit, ...]


def inspect_model(config: EngineConfig, local: LocalSizes | None, num_devices: int | None = None) -> Inspection:
    """Describes the model of `config` from headers and configuration alone; a shape or a bare config.json suffices.

    local: this machine's devices, to be shown before the named ones. num_devices: the only tensor-parallel size to show
    (None: all that divide the model).
    """
    device = DeviceKind("cpu") if local is None else DeviceKind(local.platform, local.device.name)
    with open_description(config) as described:
        source = with_packing(config, described, device)
        model, checkpoint, packing = source.model, source.checkpoint, source.packing
        max_len = engine_sizes.context_len(config, model.max_position)
        dtype = choose_dtype(config.dtype, model.dtype)
        parts = parameter_parts(model, checkpoint, dtype, packing)
        fits = tuple(model_fits(config, described, max_len, local, num_devices))
        tokenizer = describe_tokenizer(config, model, checkpoint, source.folder)
        types = Counter[str]()
        for info in () if checkpoint is None else checkpoint.tensors.values():
            types[info.dtype] += info.nbytes
    return Inspection(
        model=config.model,
        dtype=str(dtype),
        quantization=packing.name or None,
        max_model_len=max_len,
        architecture=architecture(model),
        parts=parts,
        num_params=sum(part.num_params for part in parts),
        stored_bytes=None if checkpoint is None else sum(types.values()),
        stored_types=dict(types.most_common()),
        loaded_bytes=sum(part.loaded_bytes for part in parts),
        kv=describe_kv(model, dtype, engine_sizes.page_size(config, "tpu"), max_len, page_layout(config.kv_layout)),
        tokenizer=tokenizer,
        memory_utilization=kv_pool_size.memory_share(config),
        fits=fits,
    )


@contextmanager
def open_description(config: EngineConfig) -> Generator[ModelSource]:
    """Like `open_model`, but shapes need no weights, and of a Hugging Face id only the headers are fetched."""
    path = Path(config.model).expanduser()
    is_shape = is_only_shape(config.model) and not path.exists()
    weights = [*path.glob("*.safetensors"), *path.glob("*.gguf"), *path.glob(orbax_folder.FOLDER)]
    is_bare = (path / "config.json").is_file() and not weights
    if is_shape or is_bare:
        config = replace(config, load_format="dummy")
    repo, checkpoint = hub_repo(config.model), None
    if repo is not None and not is_shape and not _is_offline():
        cache_dir = Path(config.cache_dir) if config.cache_dir else None
        checkpoint = open_header(repo, cache_dir, config.revision, config.hf_token)
    if checkpoint is not None:
        yield ModelSource(read_config(checkpoint), checkpoint, checkpoint.folder)
        return
    with open_model(config) as source:
        yield source


def _is_offline() -> bool:
    from huggingface_hub.constants import is_offline_mode

    return is_offline_mode()
