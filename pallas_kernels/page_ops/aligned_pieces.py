"""Device: `Pieces`: a batch's writes cut into the units that the TPU kernels write; computed once a step.

slots, page 64      130 131 … 159 160 … 170 │ 7 │ 64 …     three rows of a batch
pieces of 32        └── t0, 30 ──┘└ t30, 11 ┘ └1┘ └ …      (first token, number of tokens)
"""

import math
from dataclasses import dataclass, field
from typing import no_type_check

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from pallas_kernels.page_layouts import ROWS, PageLayout


@jax.tree_util.register_dataclass
@no_type_check  # jax rebuilds it with leaves that are not arrays
@dataclass(frozen=True)
class Pieces:
    """Aligned runs of `piece_len` slots, each with the consecutive tokens that are written there. int32.

    A KV group's page ids do not matter, so one plan serves all groups of a batch. The list is as long as the tokens
    (each may be a piece of its own); its first `num_pieces` entries count, and only they cost time.
    """

    first_tokens: Int[Array, "I"]
    counts: Int[Array, "I"]
    num_pieces: Int[Array, ""]
    piece_len: int = field(metadata={"static": True})


def piece_len(page_size: int, layout: PageLayout = ROWS) -> int:
    """The longest aligned run, of at most 32 slots in ROWS and 128 in LANES, that divides a page."""
    return math.gcd(page_size, layout.max_piece_len)


def plan_pieces(
    slots: Int[Array, "T"], begin: Int[Array, ""] | int, end: Int[Array, ""] | int, piece_len: int
) -> Pieces:
    """Pieces of the tokens begin <= t < end: one starts where slots do not ascend by one, and at aligned boundaries."""
    follows = (slots[1:] == slots[:-1] + 1) & (slots[1:] % piece_len != 0)
    return group(jnp.concatenate([jnp.ones(1, bool), ~follows]), begin, end, piece_len)


def group(starts: Bool[Array, "T"], begin: Int[Array, ""] | int, end: Int[Array, ""] | int, piece_len: int) -> Pieces:
    """Pieces of the tokens begin <= t < end; each starts at `begin` or where `starts` is set."""
    num_tokens = len(starts)
    begin, end = jnp.asarray(begin, jnp.int32), jnp.asarray(end, jnp.int32)
    token = jnp.arange(num_tokens, dtype=jnp.int32)
    is_first = (token >= begin) & (token < end) & (starts | (token == begin))
    # Sorting is how a TPU compacts a list; the scatter inside `nonzero` would go one token at a time.
    first_tokens = jnp.sort(jnp.where(is_first, token, num_tokens))
    next_firsts = jnp.append(first_tokens[1:], jnp.int32(num_tokens))
    return Pieces(
        first_tokens=first_tokens,
        counts=jnp.maximum(jnp.minimum(next_firsts, end) - first_tokens, 0),
        num_pieces=jnp.sum(is_first, dtype=jnp.int32),
        piece_len=piece_len,
    )
