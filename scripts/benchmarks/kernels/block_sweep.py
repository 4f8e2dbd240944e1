"""Tries block sizes of paged attention on this machine's device: checks, then times each."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.mosaic_gpu.kernel_sizes import LINES
from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.kernels.measure_kernel import SAMPLING, Sampling, seconds_of

Swept = dict[str, tuple[int, ...]]
POSITIONS = (128, 256, 512, 1024, 2048)
SIZES: dict[str, dict[str, Swept]] = {
    "tpu": {
        "decode": {"positions": POSITIONS, "rows": (4, 8, 16)},
        "chunks": {"positions": POSITIONS, "queries": (16, 32, 64, 128, 256)},
        "trees": {"positions": POSITIONS, "queries": (8, 16, 32, 64)},
    },
    "gpu": {
        "decode": {"positions": (64, 128)},
        "chunks": {"positions": (64, 128), "queries": (1, 2, 4, 8, 16, 32, 64, 128)},
        "trees": {"positions": (64, 128), "queries": (1, 2, 4, 8, 16, 32, 64, 128)},
    },
}
"""The sizes to try, by platform of the kernels and kind of rows."""
MAX_ERROR = 0.02
"""Largest deviation from the reference, as a share of the reference's largest element: bfloat16 stays below 1 %."""


def kind_of(w: Workload) -> str | None:
    """Which kernel the workload runs; None if both."""
    if w.is_decode:
        return "decode"
    if w.num_decodes:
        return None
    return "trees" if w.tree_words else "chunks"


def candidates(w: Workload, platform: str) -> Iterator[BlockSizes]:
    """The block sizes to try.

    Left out are blocks longer than twice the longest context, and on a GPU tiles that do not fill one or two warpgroups
    of `LINES` query lines.
    """
    kind = kind_of(w)
    assert kind
    swept = SIZES[platform][kind]
    for sizes in itertools.product(*swept.values()):
        block = BlockSizes(**dict(zip(swept, sizes, strict=True)))
        if block.positions != swept["positions"][0] and block.positions >= 2 * max(w.kv_lens):
            continue
        if platform == "tpu" and block.positions % w.page_size:
            continue
        if platform == "gpu" and "queries" in swept and not LINES <= block.queries * w.group_size < 4 * LINES:
            continue
        yield block


def try_block(w: Workload, block: BlockSizes, backend: str, sampling: Sampling = SAMPLING) -> dict[str, Any]:
    """Checks a block size on the workload's first two rows, then times it; `problem` says why either failed."""
    tried: dict[str, Any] = {"block": block, "time_us": None, "problem": None}
    try:
        deviation = error(replace(w, q_lens=w.q_lens[:2], kv_lens=w.kv_lens[:2]), block, backend)
        if not deviation <= MAX_ERROR:
            tried["problem"] = f"wrong by {deviation:.1%}"
        else:
            tried["time_us"] = round(1e6 * seconds_of(w, backend, block, sampling), 2)
    except (NotImplementedError, ValueError, jax.errors.JaxRuntimeError) as problem:
        tried["problem"] = str(problem).partition("\n")[0][:120]
    return tried


def error(w: Workload, block: BlockSizes, backend: str) -> float:
    """Largest deviation from the reference's output, as a share of that output's largest element."""
    args = build(w)
    spec = args.pop("spec")

    def outputs(args):
        by_blocks = paged_attention(**args, spec=replace(spec, backend=backend, block=block))[0]
        by_reference = paged_attention(**args, spec=replace(spec, backend="reference"))[0]
        return by_blocks.astype(jnp.float32), by_reference.astype(jnp.float32)

    found, wanted = jax.jit(outputs)(args)
    return float(jnp.max(jnp.abs(found - wanted)) / jnp.max(jnp.abs(wanted)))
