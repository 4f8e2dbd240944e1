"""Host: compilers for absent accelerators: whether they are installed, and their environment variables."""

import os
from importlib.util import find_spec

from jaxserve.core.errors import ConfigError

# Several processes may compile at the same time; libtpu does not ask the network for the TPU's type, nor log a line for
# each missing answer.
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
"""Platform → module of its compiler."""


def has_compiler(platform: str) -> bool:
    """Whether the compiler of a platform is installed."""
    return find_spec(COMPILERS[platform]) is not None


def require_compiler(platform: str) -> None:
    """Raise ConfigError, with the package to install, unless the compiler of a platform is installed."""
    if not has_compiler(platform):
        raise ConfigError(
            f"compiling for an absent {platform.upper()} needs {COMPILERS[platform]}, which is not installed: "
            "pip install 'jaxserve-engine[aot]'"
        )


def compile_without_devices() -> None:
    """Prepare this process, before it imports jax, to compile for absent devices.

    JAX uses only the CPU, and libtpu does not look for a TPU.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")  # library versions matter only for execution
    for name, value in LIBTPU_VARIABLES.items():
        os.environ.setdefault(name, value)
