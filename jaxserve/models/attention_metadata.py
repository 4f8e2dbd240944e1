"""Device: `kind_meta`, a batch's attention metadata for one kind of layers, in all KV groups of the kind."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.paged_attention.batch_meta import AttentionMeta, make_meta


def kind_meta(
    tables: Int[Array, "G S W"],
    first_pages: Int[Array, "G S"],
    *,
    cu_q_lens: Int[Array, "S1"],
    kv_lens: Int[Array, "S"],
    num_seqs: Int[Array, ""],
    num_decodes: Int[Array, ""],
    num_tokens: int,
    page_size: int,
) -> AttentionMeta:
    """Metadata with the `tables` [G, S, W], `first_pages` [G, S] and `write_slots` [G, T] of every group.

    Everything else is the same in all groups; `of_group` selects one of them.
    """

    def meta_of(tables: Int[Array, "S W"], first_pages: Int[Array, "S"]) -> AttentionMeta:
        return make_meta(
            cu_q_lens,
            kv_lens,
            tables,
            first_pages,
            num_seqs,
            num_decodes,
            num_tokens=num_tokens,
            page_size=page_size,
        )

    def write_slots_of(tables: Int[Array, "S W"], first_pages: Int[Array, "S"]) -> Int[Array, "T"]:
        return meta_of(tables, first_pages).write_slots

    write_slots = jax.vmap(write_slots_of)(tables, first_pages)
    meta = meta_of(tables[0], first_pages[0])
    return replace(meta, tables=tables, first_pages=first_pages, write_slots=write_slots)


def without_drops(
    first_pages: Int[Array, "G S"], kv_lens: Int[Array, "S"], page_size: int
) -> tuple[Int[Array, "G S"], Int[Array, "S"]]:
    """The same by indices of KV, of layers without a window: positions less the tokens that a row has dropped
    (`kv_policy`), which its first page counts."""
    return jnp.zeros_like(first_pages), kv_lens - first_pages[0] * page_size


def of_group(meta: AttentionMeta, group: Int[Array, ""] | int) -> AttentionMeta:
    """The metadata of one group, the attention op's argument."""
    return replace(
        meta, tables=meta.tables[group], first_pages=meta.first_pages[group], write_slots=meta.write_slots[group]
    )
