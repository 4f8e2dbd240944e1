"""Times paged attention on the device at hand, beside ceilings measured in the same run."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.paged_attention.api import paged_attention, plan
from pallas_kernels.paged_attention.arg_specs import build
from pallas_kernels.paged_attention.config import BlockSizes
from pallas_kernels.paged_attention.workloads import Workload
from scripts.kernels.cost import cost
from scripts.kernels.shapes import STATIC

SAMPLE_S = 0.2
"""Calls are chained in one dispatch until it takes this long, so that dispatch itself does not count."""
NUM_SAMPLES = 5


def ceilings(is_small: bool) -> dict[str, float]:
    """Bytes a second of a copy (read and written) and operations a second of a bfloat16 product, as measured here."""
    copied = jnp.zeros(2**25 if is_small else 2**28, jnp.float32)
    side = 1024 if is_small else 8192
    square = jnp.full((side, side), 1 / side, jnp.bfloat16)
    copy_s = seconds_a_call(lambda x: x + 1, copied)
    product_s = seconds_a_call(jnp.dot, jnp.copy(square), square)
    return {"bytes_per_s": 2 * copied.nbytes / copy_s, "ops_per_s": 2 * side**3 / product_s}


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


def seconds_of(w: Workload, backend: str, block: BlockSizes | None = None) -> float:
    """Seconds of one call. What is planned once a step for all layers is planned before."""
    args, static = arguments(w)
    q, pool = args.pop("q"), args.pop("pool")
    sizes = {"num_heads": w.num_heads, "num_kv_heads": w.num_kv_heads, "head_dim": w.head_dim, "page_size": w.page_size}
    types = {"dtype": q.dtype, "pool_dtype": pool.dtype, "window": w.window}
    args["meta"] = jax.jit(partial(plan, **sizes, **types, backend=backend, block=block))(args["meta"])

    def call(carry, args):
        q, pool = carry
        return paged_attention(q, pool=pool, **args, **static, backend=backend, block=block)

    return seconds_a_call(call, (q, pool), args)


def arguments(w: Workload) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and static arguments of the op."""
    args = build(w)
    return args, {key: args.pop(key) for key in STATIC}


def seconds_a_call(call: Callable[..., Any], carry: Any, *args: Any) -> float:
    """Median over samples, each a chain of calls that hand their result on, after a warm-up. Donates `carry`."""

    @partial(jax.jit, donate_argnums=0)
    def chain(carry: Any, count: jax.Array, args: tuple[Any, ...]) -> Any:
        return jax.lax.fori_loop(0, count, lambda _, x: call(x, *args), carry)

    def sample(carry: Any, count: int) -> tuple[Any, float]:
        started = time.perf_counter()
        carry = jax.block_until_ready(chain(carry, jnp.int32(count), args))
        return carry, time.perf_counter() - started

    carry, _ = sample(carry, 1)
    carry, once_s = sample(carry, 1)
    count = max(1, min(1000, round(SAMPLE_S / once_s)))
    times = []
    for _ in range(NUM_SAMPLES):
        carry, took_s = sample(carry, count)
        times.append(took_s / count)
    return statistics.median(times)
