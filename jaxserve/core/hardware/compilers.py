"""Host: the compilers of accelerators that need not be here: whether they are installed, and what they are told."""

import os
from importlib.util import find_spec

from jaxserve.core.errors import ConfigError

# Several processes may compile at once; no network is asked which TPU this is, and no line logged for each answer that
# is missing.
LIBTPU_VARIABLES = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
COMPILERS = {"tpu": "libtpu", "gpu": "jax_cuda13_plugin"}
"""Module of the compiler by platform."""


def has_compiler(platform: str) -> bool:
    return find_spec(COMPILERS[platform]) is not None


def require_compiler(platform: str) -> None:
    """Raises ConfigError, which says what to install, where the compiler for a platform is missing."""
    if not has_compiler(platform):
        raise ConfigError(
            f"compiling for a {platform.upper()} that is not here needs {COMPILERS[platform]}, which is not installed: "
            "pip install 'jaxserve-engine[aot]'"
        )


def compile_without_devices() -> None:
    """Before jax is imported: this process compiles for devices that are not here.

    jax is to use none but the CPU, and libtpu not to look for a TPU.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")  # versions of libraries that only running needs
    for name, value in LIBTPU_VARIABLES.items():
        os.environ.setdefault(name, value)
