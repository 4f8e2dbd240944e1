"""Tries block sizes of paged attention on the device at hand: right first, then how fast."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.config import BlockSizes
from pallas_kernels.paged_attention.workloads import Workload
from scripts.kernels.measure import arguments, seconds_of

POSITIONS = (128, 256, 512, 1024, 2048)
OTHERS = {
    "decode": ("rows", (4, 8, 16)),
    "chunks": ("queries", (16, 32, 64, 128, 256)),
    "trees": ("queries", (8, 16, 32, 64)),
}
MAX_ERROR = 0.02
"""Largest deviation from the reference, as a share of the reference's largest element: bfloat16 stays below 1 %."""


def kind_of(w: Workload) -> str | None:
    """Which kernel the workload runs; None if both."""
    if w.num_decodes == len(w.q_lens):
        return "decode"
    if w.num_decodes:
        return None
    return "trees" if w.tree_words else "chunks"


def candidates(w: Workload) -> Iterator[BlockSizes]:
    kind = kind_of(w)
    assert kind
    name, sizes = OTHERS[kind]
    longest = max(w.kv_lens)
    for positions, size in itertools.product(POSITIONS, sizes):
        if positions % w.page_size == 0 and (positions == POSITIONS[0] or positions < 2 * longest):
            yield BlockSizes(**{"positions": positions, name: size})


def try_block(w: Workload, block: BlockSizes, backend: str) -> dict[str, Any]:
    """Checked at the workload's first two rows, then timed; `problem` says what kept it from either."""
    tried: dict[str, Any] = {"block": block, "time_us": None, "problem": None}
    try:
        deviation = error(replace(w, q_lens=w.q_lens[:2], kv_lens=w.kv_lens[:2]), block, backend)
        if not deviation <= MAX_ERROR:
            tried["problem"] = f"wrong by {deviation:.1%}"
        else:
            tried["time_us"] = round(1e6 * seconds_of(w, backend, block), 2)
    except (NotImplementedError, ValueError, jax.errors.JaxRuntimeError) as problem:
        tried["problem"] = str(problem).partition("\n")[0][:120]
    return tried


def error(w: Workload, block: BlockSizes, backend: str) -> float:
    """Largest deviation of the output from the reference's, as a share of that one's largest element."""
    args, static = arguments(w)

    def outputs(args):
        by_blocks = paged_attention(**args, **static, backend=backend, block=block)[0]
        by_reference = paged_attention(**args, **static, backend="reference")[0]
        return by_blocks.astype(jnp.float32), by_reference.astype(jnp.float32)

    found, wanted = jax.jit(outputs)(args)
    return float(jnp.max(jnp.abs(found - wanted)) / jnp.max(jnp.abs(wanted)))
