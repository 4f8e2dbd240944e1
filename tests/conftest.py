"""What every test runs under: four CPU devices, strict numerics, and array shapes checked in all Device modules.

The environment is set before anything can import jax, so that the processes which tests start inherit it.
"""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from tests.house.modules import ROOT, names_of

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4".strip()
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# libtpu compiles for TPUs that are not here (`support/aot.py`): in several processes at once, asking no network
# which TPU this is, and without a line of log for each answer that it misses.
LIBTPU = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
for name, value in LIBTPU.items():
    os.environ.setdefault(name, value)
# Compiled programs outlive the run: tests count traces and lowerings, which this cache does not save.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

# The first example of a property may compile a program, so time says nothing; CI sees the same examples every time.
settings.register_profile("jaxserve", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("jaxserve")

install_import_hook(names_of("Device"), "beartype.beartype")


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Any]:
    """Finds a real model by its short name; the first use on a machine fetches it into the user's cache."""
    from checkpoints.sources import resolve

    return cache(resolve)
