"""Products with packed blocks: checks against the reference in float64 on the CPU, and times of this project's kernel
and of XLA, which decodes to memory."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial

import jax
import jax.numpy as jnp

from jaxserve.runner.programs.compiler_options import compiler_options
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.quant_matmul.api import quant_matmul
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_rules import by_rule
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND, STREAMED_BYTES, Sizes
from scripts.benchmarks.gpu.reference_checks import record_of
from scripts.benchmarks.gpu.task_list import Record, Task
from scripts.benchmarks.kernels.measure_kernel import Sampling, seconds_per_call
from tests.pallas_kernels.matmul.matmul_checks import errors
from tests.pallas_kernels.quant_matmul.block_checks import Case, multiply, truth
from tests.pallas_kernels.quant_matmul.block_stacks import FORMS


def checks(sizes: Sizes) -> Iterator[Task]:
    for case in sizes.block_checks:
        yield Task(case.name, "checks", partial(_check, case))


def tasks(sizes: Sizes) -> Iterator[Task]:
    for case in sizes.block_products:
        yield Task(case.name, "products", partial(_measure, case, sizes.product_sampling))


def _check(case: Case) -> Record:
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        expected = truth(case)
    return record_of(case.name, "none", case.bound, lambda: (errors(multiply(case), expected).max(), True))


def _measure(case: Case, sampling: Sampling) -> Record:
    layer_bytes = sum(field.nbytes for field in case.arguments()["stack"].fields.values()) // case.num_layers
    case = replace(case, num_layers=max(2, -(-STREAMED_BYTES // layer_bytes)) if sampling.seconds else 2)
    xla_s, kernel_s = (_seconds_of(case, backend, sampling) for backend in ("xla", BACKEND))
    block = by_rule(FORMS[case.form], case.num_rows, case.num_columns, case.num_inputs)
    tried = {"block": asdict(block), "time_us": round(1e6 * kernel_s, 2), "problem": None, "is_fastest": True}
    return {
        "workload": case.name,
        "weight_bytes": layer_bytes,
        "xla_us": round(1e6 * xla_s, 2),
        "is_faster": kernel_s < xla_s,
        "is_used": True,  # XLA decodes to memory
        "tried": [tried],
    }


def _seconds_of(case: Case, backend: str, sampling: Sampling) -> float:
    """Seconds of one product, in a loop over the layers: bytes that were just read lie in the L2 cache."""
    arguments, spec = replace(case, num_layers=1).arguments(), replace(case.spec, backend=backend)
    stack: BlockTensor = arguments["stack"]
    fields = {name: jnp.repeat(field, case.num_layers, axis=0) for name, field in stack.fields.items()}

    def pass_over_layers(y: jax.Array, x: jax.Array, stack: BlockTensor) -> jax.Array:
        return jax.lax.fori_loop(0, case.num_layers, lambda layer, _: quant_matmul(x, stack, layer, spec), y)

    y = jnp.zeros((case.num_rows, case.num_columns), case.out_dtype or case.dtype)
    options = compiler_options(jax.sharding.Mesh(jax.devices()[:1], ("one",)))
    operands = (arguments["x"], replace(stack, fields=fields))
    pass_s = seconds_per_call(pass_over_layers, y, *operands, sampling=sampling, compiler_options=options)
    return pass_s / case.num_layers
