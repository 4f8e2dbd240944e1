"""Attention by this project's and by other kernels. Functions return the seconds per call on one layer, or raise."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND
from scripts.benchmarks.gpu.torch_attention import torch_sdpa
from scripts.benchmarks.kernels.device_pools import NUM_DRAWN
from scripts.benchmarks.kernels.measure_kernel import Sampling, seconds_of, seconds_per_call


def equal_rows(w: Workload) -> tuple[int, int, int]:
    """(rows, new tokens per row, positions per row). Raises NotImplementedError if rows differ."""
    if len({*w.q_lens}) > 1 or len({*w.kv_lens}) > 1 or w.q_lens[0] not in (1, w.kv_lens[0]):
        raise NotImplementedError(
            "it is measured only with rows of one token each, or with whole prompts of one length"
        )
    return len(w.q_lens), w.q_lens[0], w.kv_lens[0]


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


def cudnn(w: Workload, sampling: Sampling) -> float:
    """cuDNN's attention through JAX: contiguous keys and values in each row; new tokens are not stored."""
    num_rows, q_len, kv_len = equal_rows(w)
    q = normal(0, num_rows, q_len, w.num_heads, w.head_dim)
    k, v = (jnp.repeat(normal(i, 1, kv_len, w.num_kv_heads, w.head_dim), num_rows, axis=0) for i in (1, 2))
    options: dict[str, Any] = {"scale": w.head_dim**-0.5, "is_causal": q_len > 1, "implementation": "cudnn"}
    return seconds_per_call(partial(jax.nn.dot_product_attention, **options), q, k, v, sampling=sampling)


def triton(w: Workload, sampling: Sampling) -> float:
    """JAX's own paged attention for GPUs (Triton, deprecated), the faster of two settings; stores no new tokens."""
    num_rows, q_len, kv_len = equal_rows(w)
    if q_len > 1:
        raise NotImplementedError("it supports decoding only")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        from jax.experimental.pallas.ops.gpu.paged_attention import paged_attention

    num_pages = num_rows * kv_len // w.page_size
    drawn = [normal(i, w.num_kv_heads, NUM_DRAWN, w.page_size, w.head_dim) for i in (1, 2)]
    pages = [x[:, jnp.arange(num_pages) % NUM_DRAWN] for x in drawn]
    tables = np.random.default_rng(0).permutation(num_pages).astype(np.int32).reshape(num_rows, -1)
    lengths = jnp.full(num_rows, kv_len, jnp.int32)

    def seconds(num_splits: int) -> float:
        def call(q: jax.Array, *args: jax.Array) -> jax.Array:
            return paged_attention(q, *args, pages_per_compute_block=2, k_splits=num_splits).astype(q.dtype)

        q = normal(0, num_rows, w.num_heads, w.head_dim)
        return seconds_per_call(call, q, *pages, jnp.asarray(tables), lengths, sampling=sampling)

    return min(seconds(num_splits) for num_splits in (4, 16))


OWN = (BACKEND, "xla")
KERNELS: dict[str, Callable[[Workload, Sampling], float]] = {
    BACKEND: lambda w, sampling: seconds_of(w, BACKEND, sampling=sampling),
    "xla": lambda w, sampling: seconds_of(w, "xla", sampling=sampling),
    "cuDNN": cudnn,
    "JAX's Triton kernel": triton,
    "PyTorch SDPA": lambda w, sampling: torch_sdpa(w, *equal_rows(w), sampling),
}
