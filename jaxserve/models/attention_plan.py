"""Device: what attention of one kind of layers must know of a batch, in all KV groups of the kind."""

from dataclasses import replace

import jax
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
    """Metadata whose `tables` [G, S, W], `first_pages` [G, S] and `write_slots` [G, T] hold every group.

    All else is the same in each group; `of_group` takes one of them.
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

    write_slots = jax.vmap(lambda t, f: meta_of(t, f).write_slots)(tables, first_pages)
    meta = meta_of(tables[0], first_pages[0])
    return replace(meta, tables=tables, first_pages=first_pages, write_slots=write_slots)


def of_group(meta: AttentionMeta, group: Int[Array, ""] | int) -> AttentionMeta:
    """The metadata of one group, as the attention op reads it."""
    return replace(
        meta, tables=meta.tables[group], first_pages=meta.first_pages[group], write_slots=meta.write_slots[group]
    )
