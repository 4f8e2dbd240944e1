"""Wiring: cache keys of exported programs: every input that invalidates a program which another process has traced."""

import hashlib
import json
import os
import re
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import jaxserve
import pallas_kernels
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import Form, Packing
from jaxserve.runner.programs import exported_programs
from jaxserve.runner.programs.programs import Programs
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.form_keys import key_of
from pallas_kernels.matmul.cpu_products import cpu_rule

VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
SETTINGS = ("jax_default_matmul_precision", "jax_default_prng_impl", "jax_enable_x64", "jax_threefry_partitionable")

KERNEL_FILES = (".py", ".json")  # code, and block sizes that were measured

# `import jaxserve.a` or `from jaxserve.a import b, c`, whose names may be modules or not.
IMPORTS = re.compile(r"^[ \t]*(?:from|import)[ \t]+(jaxserve\.[\w.]+)(?:[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+))?", re.M)


def model_key(model: ModelConfig) -> dict[str, Any]:
    """The fields of a model's configuration, as JSON values."""
    return _plain({f"model.{name}": value for name, value in asdict(model).items()})


def engine_key(programs: Programs) -> dict[str, Any]:
    """What the programs of an engine depend on other than its model and their buckets, as JSON values."""
    settings, layout = programs.settings, programs.layout
    device = settings.model.mesh.devices.flat[0]
    key: dict[str, Any] = {
        "jaxserve": jaxserve.__version__,
        "sources of jaxserve": sources_digest(),
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "platform": device.platform,
        "platform version": device.client.platform_version,
        "device": device.device_kind,
        "cpu_rule": cpu_rule().name if device.platform == "cpu" else "",
        "tensor_parallel_size": settings.model.mesh.size,
        "dtype": str(settings.model.dtype),
        "packing": _packing_key(settings.model.packing),
        "kv_dtype": str(layout.dtype),
        "kv_layout": str(layout.pages),
        "page_size": layout.page_size,
        "num_pages": programs.num_pages,
        "max_num_seqs": programs.num_slots,
        "has_host_tier": programs.has_host_tier,
        "max_logprobs": settings.max_logprobs,
        "attention_backend": settings.model.attention_backend,
        "batch_invariant": settings.tiles is not None,
        "proposer": settings.proposer,
        "synthetic_acceptance": settings.synthetic_acceptance,
        "acceptance": settings.acceptance,
        "adapters": settings.adapters,
        "history_len": programs.history_len,
        "num_earlier_tokens": programs.num_earlier_tokens,
        "num_sinks": programs.num_sinks,
        "num_draft_masks": programs.num_draft_masks,
    }
    key |= {name: os.environ.get(name, "") for name in VARIABLES}
    return _plain(key | {name: getattr(jax.config, name) for name in SETTINGS})


def _packing_key(packing: Packing) -> dict[str, Any]:
    def key(form: Form | None) -> Any:
        if isinstance(form, tuple):
            return [key_of(part) for part in form]
        return key_of(form) if isinstance(form, BlockForm) else form and form.name

    return {"layers": key(packing.layers), "ends": key(packing.ends)} | {path: key(form) for path, form in packing.own}


def program_digest(programs: Programs) -> str:
    """The digest of what each program of an engine depends on other than its name."""
    key = model_key(programs.settings.model.config) | engine_key(programs)
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def sources_digest() -> str:
    """The digest of all source files that programs are traced from."""
    digest = hashlib.sha256()
    for name, data in sorted(traced_sources().items()):
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def traced_sources() -> dict[str, bytes]:
    """What programs and their export import, directly or through other modules: content by module name.

    Of jaxserve the modules that are named in import statements, of pallas_kernels, whose back ends are imported by
    computed names, every one, and their measured block sizes.
    """
    root, kernels = (Path(str(package.__file__)).parent for package in (jaxserve, pallas_kernels))
    paths = [path for path in kernels.rglob("*") if path.suffix in KERNEL_FILES]
    sources = {f"pallas_kernels/{path.relative_to(kernels)}": path.read_bytes() for path in paths}
    pending = [Programs.__module__, exported_programs.__name__]
    while pending:
        module = pending.pop()
        path = root.parent.joinpath(*module.split(".")).with_suffix(".py")
        if module not in sources and path.is_file():
            sources[module] = path.read_bytes()
            for package, names in IMPORTS.findall(sources[module].decode()):
                pending += [package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))]
    return sources


def _plain(key: dict[str, Any]) -> dict[str, Any]:
    """The values as JSON gives them back."""
    return json.loads(json.dumps(key, default=str))
