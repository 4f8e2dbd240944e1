"""Wiring: pins: all that two processes must have in common for one to run the programs that the other has lowered."""

import hashlib
import json
import os
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import jaxserve
import pallas_kernels
from jaxserve.core.buckets import Buckets
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.runner.programs.programs import Programs

# Folders of `jaxserve` from which nothing enters a program.
HOST_FOLDERS = frozenset(("analysis", "bench", "cli", "convert", "engine", "scheduler", "server", "text"))
SOURCES = (".py", ".json", ".toml")

VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
SETTINGS = ("jax_default_matmul_precision", "jax_default_prng_impl", "jax_enable_x64", "jax_threefry_partitionable")


def model_pins(model: ModelConfig) -> dict[str, Any]:
    """Of the model as its checkpoint describes it, in values that JSON keeps."""
    return _plain({f"model.{name}": value for name, value in asdict(model).items()})


def program_pins(programs: Programs, buckets: Buckets) -> dict[str, Any]:
    """Of the programs of an engine and of what compiles them, in values that JSON keeps."""
    settings, layout = programs.settings, programs.layout
    device = settings.model.mesh.devices.flat[0]
    pins = {
        "jaxserve": jaxserve.__version__,
        "sources of jaxserve": sources_digest(),
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "platform": device.platform,
        "platform version": device.client.platform_version,
        "device": device.device_kind,
        "tensor_parallel_size": settings.model.mesh.size,
        "dtype": str(layout.dtype),
        "kv_layout": str(layout.pages),
        "page_size": layout.page_size,
        "num_pages": programs.num_pages,
        "max_num_seqs": programs.num_slots,
        "has_host_tier": programs.has_host_tier,
        "max_logprobs": settings.max_logprobs,
        "attention_backend": settings.model.attention_backend,
        "batch_invariant": settings.tile_rows is not None,
        "buckets": [str(bucket) for bucket in buckets.all()],
    }
    pins |= {name: os.environ.get(name, "") for name in VARIABLES}
    return _plain(pins | {name: getattr(jax.config, name) for name in SETTINGS})


def sources_digest() -> str:
    """Of all files from which a program is traced: whoever changes one must lower the programs anew."""
    digest = hashlib.sha256()
    for package in (jaxserve, pallas_kernels):
        root = Path(str(package.__file__)).parent
        for path in sorted(p for p in root.rglob("*") if p.suffix in SOURCES):
            name = path.relative_to(root)
            if package is not jaxserve or name.parts[0] not in HOST_FOLDERS:
                data = path.read_bytes()
                digest.update(f"{package.__name__}/{name.as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _plain(pins: dict[str, Any]) -> dict[str, Any]:
    """As they come back from a file."""
    return json.loads(json.dumps(pins, default=str))
