"""Adapters by this project's kernels: checks against their matrices in float64, and times of what they add to all sites
of a layer, by the kernels and by XLA."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.runner.programs.compiler_options import compiler_options
from pallas_kernels.lora_matmul import api
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.workload_arguments import LoraArguments, make_arguments
from pallas_kernels.lora_matmul.workloads import LoraWorkload
from scripts.benchmarks.gpu.adapter_case import AdapterCase
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND
from scripts.benchmarks.gpu.reference_checks import record_of
from scripts.benchmarks.gpu.task_list import Record, Task
from scripts.benchmarks.kernels.measure_kernel import Sampling, seconds_per_call

BOUND = 1e-4
"""Tensor cores keep fewer bits of a sum than float32 has. Another adapter's matrices make errors of 0.1 and more."""


def checks(workloads: dict[str, LoraWorkload]) -> Iterator[Task]:
    for name, w in workloads.items():
        yield Task(f"adapters, {name}", "checks", partial(_check, f"adapters, {name}", replace(w, dtype="bfloat16")))


def tasks(cases: tuple[AdapterCase, ...], sampling: Sampling) -> Iterator[Task]:
    for case in cases:
        yield Task(case.name, "adapters", partial(_measure, case, sampling))


def _check(name: str, w: LoraWorkload) -> Record:
    args = make_arguments(w)
    return record_of(name, "none", BOUND, lambda: (_error(args), True))


def _error(args: LoraArguments) -> float:
    """The largest error as a share of the largest number, or of 1."""
    batch = jax.jit(partial(api.plan, backend=BACKEND))(args.batch)
    run = jax.jit(partial(api.lora_matmul, site=args.site, backend=BACKEND))
    found, expected = run(args.x, args.pool, args.layer, args.group, batch), args.expected()
    size = max(1.0, *(float(np.abs(part).max()) for part in expected))
    errors = (np.abs(np.asarray(part) - whole).max() for part, whole in zip(found, expected, strict=True))
    return float(max(errors)) / size


def _measure(case: AdapterCase, sampling: Sampling) -> Record:
    times = {backend: _seconds_of(case, backend, sampling) for backend in ("xla", BACKEND)}
    return {
        "workload": case.name,
        "adapter_bytes": case.layer_bytes,
        "xla_us": round(1e6 * times["xla"], 2),
        "kernel_us": round(1e6 * times[BACKEND], 2),
    }


def _seconds_of(case: AdapterCase, backend: str, sampling: Sampling) -> float:
    """Seconds of all sites of a layer, in a loop over layers: what was just read lies in the L2 cache."""
    layout, sites = case.layout, tuple(case.layout.sites.values())
    num_layers = max(2, -(-case.streamed_bytes // case.layer_bytes))
    ids = np.arange(case.num_adapters * layout.max_blocks * layout.num_pages, dtype=np.int32)
    tables = np.zeros((case.num_adapters + 1, layout.max_blocks, 1, layout.num_pages), np.int32)
    tables[1:] = 1 + np.random.default_rng(0).permutation(ids).reshape(tables[1:].shape)
    pool = jax.random.normal(jax.random.key(0), (num_layers, 1 + len(ids), *case.page), jnp.bfloat16)
    places = jnp.arange(case.num_rows, dtype=jnp.int32) % case.num_adapters + 1
    batch = jax.jit(partial(api.plan, backend=backend))(LoraBatch(places, jnp.asarray(tables)))
    rows = [
        jax.random.normal(jax.random.key(i), (case.num_rows, site.parts[0].num_inputs), jnp.bfloat16)
        for i, site in enumerate(sites)
    ]

    def pass_over_layers(added: Any, rows: list[jax.Array], pool: jax.Array, batch: LoraBatch) -> Any:
        def add(layer: jax.Array, _: Any) -> Any:
            of_sites = zip(rows, sites, strict=True)
            return [api.lora_matmul(x, pool, layer, jnp.int32(0), batch, site, backend=backend) for x, site in of_sites]

        return jax.lax.fori_loop(0, num_layers, add, added)

    added = [tuple(jnp.zeros((case.num_rows, part.num_outputs)) for part in site.parts) for site in sites]
    options = compiler_options(jax.sharding.Mesh(jax.devices()[:1], ("one",)))
    operands = (rows, pool, batch)
    return (
        seconds_per_call(pass_over_layers, added, *operands, sampling=sampling, compiler_options=options) / num_layers
    )
