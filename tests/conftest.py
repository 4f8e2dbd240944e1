"""Settings of all tests: four CPU devices, strict numerics, and checked array shapes in all Device modules.

Environment variables are set before jax is imported, and child processes inherit them.
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
from tests.support import shape_checks

pytest_plugins = ["tests.support.runs.slow_files", "tests.support.runs.thorough_tests"]
pytest.register_assert_rewrite("tests.support.invariance_laws")  # its asserts show values, as in test files

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# One part instead of the default 32, which takes LLVM an eighth longer when two test processes share two cores.
XLA_FLAGS = ["--xla_force_host_platform_device_count=4", "--xla_cpu_parallel_codegen_split_count=1"]
if not os.environ.get("JAXSERVE_DEFAULT_COMPILER"):
    # XLA's old emitters compile a step of a tiny model in 0.7 s of CPU time, the default ones in 2.4 s.
    XLA_FLAGS.append("--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters")
os.environ["XLA_FLAGS"] = " ".join((*XLA_FLAGS, os.environ.get("XLA_FLAGS", "")))
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# libtpu compiles for absent TPUs (`support/compiled/aot.py`), in several processes at once.
for name, value in LIBTPU_VARIABLES.items():
    os.environ.setdefault(name, value)
# Compiled programs are cached across runs; tests count traces and lowerings, which this cache does not affect.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
# With an empty cache, as in CI, writing the small programs costs more than finding them again saves.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1" if "CI" in os.environ else "0.1")
# Python's stack for each operation of a program takes a twentieth of the time of tracing and compiling.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# Tracing makes and frees a million objects; collecting garbage as rarely as this saves a fourteenth of all tests' time.
gc.set_threshold(200_000, 50, 1000)

# No deadline, because the first example of a property may compile a program; in CI the examples are always the same.
settings.register_profile("jaxserve", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("jaxserve")

install_import_hook(names_of("Device"), f"{shape_checks.__name__}.check")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Enables LLVM's optimizations only in tests marked `optimized` or `default_compiler`.

    A step of a tiny model runs for a millisecond, and its compilation takes 10 s of CPU time with optimizations, 7
    without.
    """
    import jax

    is_optimized = any(any(item.iter_markers(name)) for name in ("optimized", "default_compiler"))
    jax.config.update("jax_disable_most_optimizations", not is_optimized)


# XLA maps each compiled CPU program in pieces (code, constants and data per kernel). Linux allows a process 65,530 maps
# (vm.max_map_count), and LLVM aborts the process above that limit. The engines of a single file need up to 28,000. With
# a limit of 10,000, programs that many files share are compiled anew after each: a twelfth of the time of their tests.
MAX_MAPS = 30_000


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
    """Number of memory maps of this process; 0 where the system does not list them."""
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Any]:
    """Resolves a real model by its short name; the first use on a machine downloads it into the user's cache."""
    from checkpoints.sources import resolve

    return cache(resolve)


@pytest.fixture
def as_optax_adds():
    """Optax relies on JAX's own rules for arrays of different types and ranks."""
    import jax

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
