"""Times paged attention on this machine's device, with ceilings measured in the same run."""

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
    """How often a call is timed."""

    seconds: float = 0.2
    """Calls are chained in one dispatch until it takes this long, so that dispatch itself does not count."""
    count: int = 5
    """Dispatches, of which the median counts."""


SAMPLING = Sampling()


def ceilings(is_small: bool, sampling: Sampling = SAMPLING) -> dict[str, float]:
    """Bytes a second of a copy (read and written) and operations a second of a bfloat16 product, as measured here.

    The product is of random numbers: an H200 multiplies matrices of zeros 13 % faster.
    """
    copied = jnp.arange(2**25 if is_small else 2**28, dtype=jnp.float32)
    side = 1024 if is_small else 8192
    factor, square = jax.random.normal(jax.random.key(1), (2, side, side), jnp.bfloat16)
    square /= jnp.bfloat16(side**0.5)
    num_bytes = 2 * copied.nbytes
    copy_s = seconds_a_call(lambda x: x + 1, copied, sampling=sampling)
    product_s = seconds_a_call(jnp.dot, factor, square, sampling=sampling)
    return {"bytes_per_s": num_bytes / copy_s, "ops_per_s": 2 * side**3 / product_s}


def measure(w: Workload, ceiling: dict[str, float], backend: str, block: BlockSizes | None = None) -> dict[str, Any]:
    """Time of one call on one layer, and what share of the ceilings the needed bytes and operations are."""
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
    """Seconds of one call. The plan, made once a step for all layers, is made before."""
    args = build(w, fill=pool_on_device)
    q, pool, spec = args.pop("q"), args.pop("pool"), replace(args.pop("spec"), backend=backend, block=block)
    args["meta"] = jax.jit(partial(plan, spec=spec, model=model_of(w)))(args["meta"])

    def call(carry, args):
        q, pool = carry
        return paged_attention(q, pool=pool, **args, spec=spec)

    return seconds_a_call(call, (q, pool), args, sampling=sampling)


def seconds_a_call(call: Callable[..., Any], carry: Any, *args: Any, sampling: Sampling = SAMPLING) -> float:
    """Median over samples, each a chain of calls that hand their result on, after a warm-up. Donates `carry`.

    A chain is one program with a loop of a length that the compiler knows: no call waits for a dispatch (tens of µs,
    where decode attention takes a hundred), none can start before the one before has ended, and no host reads back
    whether another turn is due, as it does before each turn of a GPU's loop of unknown length.
    """

    @partial(jax.jit, donate_argnums=0, static_argnums=1)
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
