"""Products of few rows by this project's kernel and by XLA. Where the kernel is faster, its sizes become a measured
entry, with which "auto" uses it."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxserve.runner.programs.compiler_options import compiler_options
from pallas_kernels import tuned_blocks
from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.mosaic_gpu.block_rules import by_rule, tuned_key
from pallas_kernels.matmul.workload_arguments import spec_of, stack_shape, types_of
from pallas_kernels.matmul.workloads import Workload
from pallas_kernels.qtensor import ALL_SCHEMES, FP8, QTensor
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND, Sizes
from scripts.benchmarks.gpu.task_list import Record, Task
from scripts.benchmarks.kernels.measure_kernel import Sampling, seconds_per_call
from scripts.benchmarks.kernels.tune_kernels import fastest, write
from tests.pallas_kernels.matmul.matmul_checks import bound_of, errors, multiply, op_of

OP = "matmul"


def tasks(sizes: Sizes, folder: Path, device_kind: str) -> Iterator[Task]:
    """One task per workload. Its result is written at once, for the later parts."""
    file = folder / tuned_blocks.slug(device_kind) / f"{OP}.json"
    for w in sizes.products:
        yield Task(w.name, "products", partial(measure, w, sizes.product_sampling, file, device_kind))


def measure(w: Workload, sampling: Sampling, file: Path, device_kind: str) -> Record:
    """Times XLA and the kernel with several block sizes, each of which is checked first."""
    arguments = on_device(w)
    xla_s = seconds_of(w, arguments, "xla", None, sampling)
    expected = multiply(arguments, backend="reference")

    def try_block(block: BlockSizes) -> dict[str, Any]:
        tried: dict[str, Any] = {"block": block, "time_us": None, "problem": None}
        try:
            error = errors(multiply(arguments, backend=BACKEND, block=block), expected).max()
            if not error <= 2 * bound_of(w):  # the reference is rounded too
                return tried | {"problem": f"wrong by {error:.1e}"}
            return tried | {"time_us": round(1e6 * seconds_of(w, arguments, BACKEND, block, sampling), 2)}
        except (NotImplementedError, jax.errors.JaxRuntimeError) as problem:
            return tried | {"problem": str(problem).partition("\n")[0][:120]}

    tried = list(map(try_block, candidates(w)))
    best = fastest(tried)
    if not best:
        raise NotImplementedError("; ".join(sorted({str(one["problem"]) for one in tried})))
    key = tuned_key(w.num_rows, w.num_columns, w.num_inputs, types_of(w), spec_of(w))
    is_faster = best[0]["time_us"] < 1e6 * xla_s
    entry = key | {"block": asdict(best[0]["block"]), "time_us": best[0]["time_us"]}
    is_always_used = w.scheme == FP8.name  # XLA copies codes of FP8 (`block_rules.block_sizes`)
    write(file, device_kind, [entry] if is_faster or is_always_used else [], op=OP, dropped=[key])
    return {
        "workload": w.name,
        "weight_bytes": w.weight_bytes,
        "xla_us": round(1e6 * xla_s, 2),
        "is_faster": is_faster,
        "is_used": is_faster or is_always_used,
        "tried": [one | {"block": asdict(one["block"]), "is_fastest": one is best[0]} for one in tried],
    }


def candidates(w: Workload) -> Iterator[BlockSizes]:
    """The block sizes to try: around the number of splits that the rule selects."""
    splits = by_rule(w.num_rows, w.num_columns, w.num_inputs, w.num_parts, types_of(w)[1]).splits
    for columns, inputs, n in itertools.product((64, 128), (64, 128), (splits // 2, splits, 2 * splits)):
        if n and w.num_columns % columns == 0 and w.num_inputs % inputs == 0 and n * inputs <= w.num_inputs:
            yield BlockSizes(columns, inputs, n)


def on_device(w: Workload) -> dict[str, Any]:
    """Arguments of the product with random numbers in all layers: with zeros, a chip runs at a higher clock."""

    def normal(seed: int, *shape: int) -> jax.Array:
        return jax.random.normal(jax.random.key(seed), shape, w.dtype)

    arguments = {
        "x": normal(0, w.num_rows, w.num_inputs) / jnp.asarray(w.num_inputs**0.5, w.dtype),
        "layer": jnp.int32(0),
        "bias": normal(2, w.num_columns) if w.has_bias else None,
        "spec": spec_of(w),
    }
    if w.scheme is None:
        residual = normal(3, w.num_rows, w.num_columns) if w.has_residual else None
        return arguments | {"stack": normal(1, *stack_shape(w)), "residual": residual}
    scheme = ALL_SCHEMES[w.scheme]
    codes = jax.random.randint(jax.random.key(1), stack_shape(w), -127, 128, jnp.int8).astype(scheme.codes)
    scales = jnp.full(codes.shape[:-1], 1 / 64, jnp.float32)  # the codes' deviation is 73
    return arguments | {"stack": QTensor(codes, scales, scheme, w.dtype)}


def seconds_of(
    w: Workload, arguments: dict[str, Any], backend: str, block: BlockSizes | None, sampling: Sampling
) -> float:
    """Seconds of one product, in a loop over the layers: weights that were just read lie in the L2 cache."""
    spec = replace(spec_of(w), backend=backend, block=block)

    def pass_over_layers(y: jax.Array, x: jax.Array, stack: jax.Array | QTensor, bias: jax.Array | None) -> jax.Array:
        # Without a residual: layers add theirs after the product, and after its norm.
        def product(layer: jax.Array, y: jax.Array) -> jax.Array:
            return op_of(stack)(x, stack, layer, spec, bias=bias)

        return jax.lax.fori_loop(0, w.num_layers, product, y)

    y = jnp.zeros((w.num_rows, w.num_columns), w.out_dtype or w.dtype)
    operands = (arguments[name] for name in ("x", "stack", "bias"))
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("one",))
    options = compiler_options(mesh)  # of a step; without them XLA copies each layer first
    pass_s = seconds_per_call(pass_over_layers, y, *operands, sampling=sampling, compiler_options=options)
    return pass_s / w.num_layers
