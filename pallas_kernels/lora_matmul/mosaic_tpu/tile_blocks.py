"""Device: the blocks of arrays that the kernels of adapters have in vector memory for a tile of tokens."""

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.kernel_types import Ref, Scalar
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import TILE

VMEM_BYTES = 48 * 2**20
"""Of a TPU7x's 64 MiB."""
COMPILER_PARAMS = pltpu.CompilerParams(
    dimension_semantics=("arbitrary",), disable_bounds_checks=True, vmem_limit_bytes=VMEM_BYTES
)
ANYWHERE = pl.BlockSpec(memory_space=pltpu.HBM)


def _row(i: Scalar, *_: Ref) -> tuple[Scalar, ...]:
    return i, 0


def _lane(i: Scalar, *_: Ref) -> tuple[Scalar, ...]:
    return 0, i


def _lane_of_parts(i: Scalar, *_: Ref) -> tuple[Scalar, ...]:
    return 0, 0, i


def rows_of_tile(num_tokens: int, width: int) -> pl.BlockSpec:
    """Of an array with a row for each token."""
    return pl.BlockSpec((min(num_tokens, TILE), width), _row)


PLACES_OF_TILE = pl.BlockSpec((1, TILE), _lane)


def sums_of_tile(num_parts: int, num_ranks: int) -> pl.BlockSpec:
    """Of sums [parts, R, tokens]."""
    return pl.BlockSpec((num_parts, num_ranks, TILE), _lane_of_parts)
