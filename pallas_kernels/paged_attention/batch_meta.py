"""Device: `AttentionMeta`: a batch's rows, their pages, and the row and position of each token."""

from dataclasses import dataclass
from typing import Any, no_type_check

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int


@jax.tree_util.register_dataclass
@no_type_check  # jax rebuilds it with leaves that are not arrays
@dataclass(frozen=True)
class AttentionMeta:
    """One batch of S rows (sequences) and T tokens, for one KV group. All int32.

    Tokens of a row are consecutive, rows are in order, padding tokens come last. Rows [0, num_decodes) have exactly one
    token each, so token t of such a row is t == row; rows [num_decodes, num_seqs) have any number; the rest is padding.
    A batch with T == S promises one token a row throughout (num_decodes == num_seqs).
    """

    cu_q_lens: Int[Array, "S1"]
    """S1 = S + 1 ends: the tokens of row s are [cu_q_lens[s], cu_q_lens[s + 1])."""
    kv_lens: Int[Array, "S"]
    """KV positions of each row after this batch's tokens have been written."""
    tables: Int[Array, "S W"]
    """Column j of row s holds the page of positions [(first_pages[s] + j)·page, … + page). Unused columns: any page."""
    first_pages: Int[Array, "S"]
    """Pages freed at the front of each row because they lie entirely before its window; 0 where none are freed."""
    rows: Int[Array, "T"]
    """Row of each token; any row for padding."""
    kv_positions: Int[Array, "T"]
    """KV index of each token in its row."""
    write_slots: Int[Array, "T"]
    """page · page_size + offset at which the token's key and value are stored; in page 0 (scratch) for padding."""
    num_seqs: Int[Array, ""]
    num_decodes: Int[Array, ""]
    tree: Int[Array, "T words"] | None = None
    """Bit j of a token: it attends to the j-th token of its row in this batch. Every token attends to itself and to all
    earlier KV, none to later tokens: -1 everywhere is causal, like None. Rows of more than 32 · words tokens must be
    causal."""
    plan: Any = None
    """The result of `api.plan` for the batch's back end, once for all layers; None: computed in every call."""

    @property
    def q_lens(self) -> Int[Array, "S"]:
        """Tokens of each row."""
        return self.cu_q_lens[1:] - self.cu_q_lens[:-1]


def make_meta(
    cu_q_lens: Int[Array, "S1"],
    kv_lens: Int[Array, "S"],
    tables: Int[Array, "S W"],
    first_pages: Int[Array, "S"],
    num_seqs: Int[Array, ""],
    num_decodes: Int[Array, ""],
    *,
    num_tokens: int,
    page_size: int,
    tree: Int[Array, "T words"] | None = None,
) -> AttentionMeta:
    """Derives the fields per token from the fields per row. `num_tokens` is the bucket's T, padding included."""
    num_rows, width = tables.shape
    token = jnp.arange(num_tokens, dtype=jnp.int32)
    ends = jnp.where(jnp.arange(num_rows) < num_seqs, cu_q_lens[1:], cu_q_lens[num_seqs])
    rows = jnp.searchsorted(ends, token, side="right", method="compare_all").astype(jnp.int32)
    is_token = rows < num_rows
    rows = jnp.minimum(rows, num_rows - 1)
    kv_positions = kv_lens[rows] - cu_q_lens[rows + 1] + token
    column = jnp.clip(kv_positions // page_size - first_pages[rows], 0, width - 1)
    slots = tables[rows, column] * page_size + kv_positions % page_size
    return AttentionMeta(
        cu_q_lens=cu_q_lens,
        kv_lens=kv_lens,
        tables=tables,
        first_pages=first_pages,
        rows=jnp.where(is_token, rows, 0),
        kv_positions=jnp.where(is_token, kv_positions, 0),
        write_slots=jnp.where(is_token, slots, token % page_size),
        num_seqs=num_seqs,
        num_decodes=num_decodes,
        tree=tree,
    )


def sequence_positions(meta: AttentionMeta) -> Int[Array, "T"]:
    """Position of each token in its text: its KV index minus the draft nodes on other branches.

    Windows and rotary embeddings use these positions, so that verifying a draft equals decoding it token by token.
    """
    if meta.tree is None:
        return meta.kv_positions
    num_bits = 32 * meta.tree.shape[1]
    node = jnp.arange(meta.rows.shape[0], dtype=jnp.int32) - meta.cu_q_lens[meta.rows]
    first_bit = 32 * jnp.arange(meta.tree.shape[1], dtype=jnp.int32)
    num_earlier = jnp.clip(node[:, None] - first_bit[None], 0, 32).astype(jnp.uint32)
    earlier = (jnp.uint32(1) << num_earlier) - 1  # XLA's shift by 32 gives 0, so that all bits are set
    words = jax.lax.bitcast_convert_type(meta.tree, jnp.uint32)
    depth = jnp.sum(jax.lax.population_count(words & earlier).astype(jnp.int32), axis=1, dtype=jnp.int32)
    return meta.kv_positions - node + depth + jnp.maximum(node - num_bits, 0)


def tree_columns(meta: AttentionMeta, window: int | None) -> Int[Array, "T columns"]:
    """Each token's ancestor bits (itself included, those before the window cleared) and its sequence position."""
    assert meta.tree is not None
    num_tokens, num_words = meta.tree.shape
    positions = sequence_positions(meta)
    first_token = meta.cu_q_lens[meta.rows][:, None]
    node = jnp.arange(32 * num_words, dtype=jnp.int32)[None]
    bits = (jnp.repeat(meta.tree, 32, axis=1) >> (node % 32)) & 1 == 1
    bits |= first_token + node == jnp.arange(num_tokens, dtype=jnp.int32)[:, None]
    if window is not None:
        other = jnp.minimum(first_token + node, num_tokens - 1)
        bits &= positions[other] > positions[:, None] - window
    words = jnp.sum(jnp.where(bits, jnp.int32(1) << (node % 32), 0).reshape(num_tokens, num_words, 32), axis=2)
    return jnp.concatenate([words.astype(jnp.int32), positions[:, None]], axis=1)
