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
from pallas_kernels.lora_matmul.adapter_layout import RANKS, AdapterLayout
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.workload_arguments import LoraArguments, make_arguments
from pallas_kernels.lora_matmul.workloads import LoraWorkload
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND, STREAMED_BYTES, Sizes
from scripts.benchmarks.gpu.reference_checks import record_of
from scripts.benchmarks.gpu.task_list import Record, Task
from scripts.benchmarks.kernels.measure_kernel import Sampling, seconds_per_call

BOUND = 1e-4
"""Tensor cores keep fewer bits of a sum than float32 has. Another adapter's matrices make errors of 0.1 and more."""


def checks(sizes: Sizes) -> Iterator[Task]:
    for name, w in sizes.adapter_checks.items():
        yield Task(f"adapters, {name}", "checks", partial(_check, f"adapters, {name}", replace(w, dtype="bfloat16")))


def tasks(sizes: Sizes) -> Iterator[Task]:
    for name, w in sizes.adapters.items():
        yield Task(name, "adapters", partial(_measure, name, w, sizes.product_sampling))


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


def _measure(name: str, w: LoraWorkload, sampling: Sampling) -> Record:
    num_bytes = _layer_bytes(w)
    num_layers = max(2, -(-STREAMED_BYTES // num_bytes)) if sampling.seconds else 2
    times = {backend: _seconds_of(w, num_layers, backend, sampling) for backend in ("xla", BACKEND)}
    return {
        "workload": name,
        "adapter_bytes": num_bytes,
        "xla_us": round(1e6 * times["xla"], 2),
        "kernel_us": round(1e6 * times[BACKEND], 2),
    }


def _layer_bytes(w: LoraWorkload) -> int:
    """Of the matrices that the rows need, in a layer."""
    numbers = sum(inputs + outputs for site in w.sites for _, inputs, outputs in site.parts)
    ranks = sum(-(-rank // RANKS) * RANKS for rank in w.ranks[: w.num_tokens])
    return jnp.dtype(w.dtype).itemsize * ranks * numbers


def _seconds_of(w: LoraWorkload, num_layers: int, backend: str, sampling: Sampling) -> float:
    """Seconds of all sites of a layer, in a loop over layers: what was just read lies in the L2 cache. Row t has the
    adapter of place 1 + t % places."""
    num_heads, page, width = w.page_shape
    num_places = len(w.ranks)
    layout = AdapterLayout(w.sites, num_heads * page, width, max(w.ranks), num_places)
    sites = tuple(layout.sites.values())
    ids = np.arange(1, 1 + num_places * layout.max_blocks * layout.num_pages, dtype=np.int32)
    tables = np.zeros((num_places + 1, layout.max_blocks, 1, layout.num_pages), np.int32)
    tables[1:] = np.random.default_rng(0).permutation(ids).reshape(tables[1:].shape)
    pool = jax.random.normal(jax.random.key(0), (num_layers, 1 + len(ids), *w.page_shape), w.dtype)
    places = jnp.arange(w.num_tokens, dtype=jnp.int32) % num_places + 1
    batch = jax.jit(partial(api.plan, backend=backend))(LoraBatch(places, jnp.asarray(tables)))
    rows = [
        jax.random.normal(jax.random.key(i), (w.num_tokens, site.parts[0].num_inputs), w.dtype)
        for i, site in enumerate(sites)
    ]

    def pass_over_layers(added: Any, rows: list[jax.Array], pool: jax.Array, batch: LoraBatch) -> Any:
        def add(layer: jax.Array, _: Any) -> Any:
            of_sites = zip(rows, sites, strict=True)
            return [api.lora_matmul(x, pool, layer, jnp.int32(0), batch, site, backend=backend) for x, site in of_sites]

        return jax.lax.fori_loop(0, num_layers, add, added)

    added = [tuple(jnp.zeros((w.num_tokens, part.num_outputs)) for part in site.parts) for site in sites]
    options = compiler_options(jax.sharding.Mesh(jax.devices()[:1], ("one",)))
    operands = (rows, pool, batch)
    return (
        seconds_per_call(pass_over_layers, added, *operands, sampling=sampling, compiler_options=options) / num_layers
    )
