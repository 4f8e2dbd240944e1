"""What every test runs under: four CPU devices, strict numerics, and array shapes checked in all Device modules.

The environment is set before anything can import jax, so that the processes which tests start inherit it.
"""

import gc
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from jaxserve.core.hardware.compilers import LIBTPU_VARIABLES
from tests.repository.modules import ROOT, names_of

pytest_plugins = ["tests.support.slow_files"]

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# One part, for two processes have the two cores: LLVM takes an eighth longer for 32.
XLA_FLAGS = ["--xla_force_host_platform_device_count=4", "--xla_cpu_parallel_codegen_split_count=1"]
if not os.environ.get("JAXSERVE_DEFAULT_COMPILER"):
    # XLA's former emitters compile a step of a tiny model in 0.7 s of processor time, those that users run in 2.4.
    XLA_FLAGS.append("--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters")
os.environ["XLA_FLAGS"] = " ".join((*XLA_FLAGS, os.environ.get("XLA_FLAGS", "")))
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# libtpu compiles for TPUs that are not here (`support/aot.py`), in several processes at once.
for name, value in LIBTPU_VARIABLES.items():
    os.environ.setdefault(name, value)
# Compiled programs outlive the run: tests count traces and lowerings, which this cache does not save.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

# The first example of a property may compile a program, so time says nothing; CI sees the same examples every time.
settings.register_profile("jaxserve", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("jaxserve")

install_import_hook(names_of("Device"), "beartype.beartype")


@pytest.fixture(scope="module", autouse=True)
def _compiled_quickly(request):
    """LLVM optimizes in modules marked `optimized` alone: a step of a tiny model runs for a millisecond, and takes 10 s
    of a processor to compile with optimizations, 7 without."""
    import jax

    is_optimized = any(any(request.node.iter_markers(name)) for name in ("optimized", "default_compiler"))
    jax.config.update("jax_disable_most_optimizations", not is_optimized)


# A program that XLA compiles for a CPU is mapped in pieces (three a kernel: code, constants, data), and Linux grants a
# process 65,530 maps (vm.max_map_count); LLVM aborts the process that asks for one more. After three quarters of the
# suite one of two processes held 58,000; the engines of one file alone take up to 28,000.
MAX_MAPS = 10_000


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_go_before_maps_run_out():
    yield
    if number_of_maps() > MAX_MAPS:
        import jax

        from tests.support.tiny_engines import forget_engines

        forget_engines()
        jax.clear_caches()
        gc.collect()


def number_of_maps() -> int:
    """Memory maps of this process; 0 where the system does not list them."""
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Any]:
    """Finds a real model by its short name; the first use on a machine fetches it into the user's cache."""
    from checkpoints.sources import resolve

    return cache(resolve)
