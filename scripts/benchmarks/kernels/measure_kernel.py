"""Times paged attention on this machine's device, and measures its ceilings in the same run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.paged_attention.api import paged_attention, plan
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.workload_arguments import build, model_of
from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.kernels.attention_cost import cost
from scripts.benchmarks.kernels.device_pools import pool_on_device


@dataclass(frozen=True)
class Sampling:
    """How a call is timed."""

    seconds: float = 0.2
    """Duration of a dispatch, in which calls are chained so that the dispatch itself does not count."""
    count: int = 5
    """Number of dispatches, whose median is the result."""


SAMPLING = Sampling()


def ceilings(is_small: bool, sampling: Sampling = SAMPLING) -> dict[str, float]:
    """Measured bytes per second of a copy (read and written) and operations per second of a bfloat16 product.

    The factors are random: an H200 multiplies matrices of zeros 13 % faster.
    """
    copied = jnp.arange(2**25 if is_small else 2**28, dtype=jnp.float32)
    side = 1024 if is_small else 8192
    factor, square = jax.random.normal(jax.random.key(1), (2, side, side), jnp.bfloat16)
    square /= jnp.bfloat16(side**0.5)
    num_bytes = 2 * copied.nbytes
    copy_s = seconds_per_call(lambda x: x + 1, copied, sampling=sampling)
    product_s = seconds_per_call(jnp.dot, factor, square, sampling=sampling)
    return {"bytes_per_s": num_bytes / copy_s, "ops_per_s": 2 * side**3 / product_s}


def measure(w: Workload, ceiling: dict[str, float], backend: str, block: BlockSizes | None = None) -> dict[str, Any]:
    """Time of one call on one layer, and its rates of needed bytes and operations as shares of the ceilings."""
    call_s = seconds_of(w, backend, block)
    needed = cost(w)
    return {
        "workload": w.name,
        "page_size": w.page_size,
        "call_s": call_s,
        "bytes": needed.bytes,
        "ops": needed.ops,
        "mbu": needed.bytes / call_s / ceiling["bytes_per_s"],
        "mfu": needed.ops / call_s / ceiling["ops_per_s"],
    }


def seconds_of(w: Workload, backend: str, block: BlockSizes | None = None, sampling: Sampling = SAMPLING) -> float:
    """Seconds of one call. The plan, which serves all layers of a step, is computed before."""
    args = build(w, fill=pool_on_device)
    q, pool, spec = args.pop("q"), args.pop("pool"), replace(args.pop("spec"), backend=backend, block=block)
    args["meta"] = jax.jit(partial(plan, spec=spec, model=model_of(w)))(args["meta"])

    def call(carry, args):
        q, pool = carry
        return paged_attention(q, pool=pool, **args, spec=spec)

    return seconds_per_call(call, (q, pool), args, sampling=sampling)


def seconds_per_call(
    call: Callable[..., Any],
    carry: Any,
    *args: Any,
    sampling: Sampling = SAMPLING,
    compiler_options: dict[str, bool] | None = None,
) -> float:
    """Seconds per call: the median over samples after a warm-up. Donates `carry`.

    A sample is a chain: one program with a loop over calls, each of which takes the previous result. So no call waits
    for a dispatch (tens of µs, where decode attention takes a hundred) or starts before the previous one has ended.
    The loop's length is static: before each iteration of a GPU loop of unknown length the host reads its condition.
    """

    @partial(jax.jit, donate_argnums=0, static_argnums=1, compiler_options=compiler_options)
    def chain(carry: Any, count: int, args: tuple[Any, ...]) -> Any:
        return jax.lax.fori_loop(0, count, lambda _, x: call(x, *args), carry)

    def sample(carry: Any, count: int) -> tuple[Any, float]:
        started = time.perf_counter()
        carry = jax.block_until_ready(chain(carry, count, args))
        return carry, time.perf_counter() - started

    carry, _ = sample(carry, 1)
    carry, once_s = sample(carry, 1)
    count = max(1, min(1000, round(sampling.seconds / once_s)))
    times = [once_s]
    if count > 1:
        carry, _ = sample(carry, count)
        times = []
    while len(times) < sampling.count:
        carry, took_s = sample(carry, count)
        times.append(took_s / count)
    return statistics.median(times)
