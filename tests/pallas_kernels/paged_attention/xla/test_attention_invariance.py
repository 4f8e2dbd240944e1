"""A row's result is bit for bit independent of other rows, of the table's width and of its chunking."""

from dataclasses import replace
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.page_layouts import ROWS
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import make_meta
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from tests.pallas_kernels.paged_attention.attention_calls import attend

pytestmark = pytest.mark.default_compiler

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, PAGE = 6, 2, 64, 8
BLOCK = BlockSizes(positions=32, rows=4, queries=16)


class Batch:
    """Rows of texts whose queries, keys and values are functions of (seed, position) alone."""

    def __init__(self, *, num_tokens: int, num_rows: int, width: int, num_pages: int = 64, order: int = 0):
        self.num_tokens, self.num_rows, self.width = num_tokens, num_rows, width
        self.free = iter(1 + np.random.default_rng(order).permutation(num_pages - 1))
        self.pool = np.full((1, num_pages, NUM_KV_HEADS, PAGE, ROWS.packed_len(HEAD_DIM, None)), np.nan, np.float32)
        self.rows, self.tokens = [], []

    def add(self, seed: int, kv_len: int, q_len: int = 1) -> "Batch":
        rng = np.random.default_rng(seed)
        heads = NUM_HEADS + 2 * NUM_KV_HEADS
        text = rng.standard_normal((256, heads, HEAD_DIM), np.float32)[:kv_len]
        q, k, v = np.split(text, (NUM_HEADS, NUM_HEADS + NUM_KV_HEADS), axis=1)
        pages = np.array([next(self.free) for _ in range(-(-kv_len // PAGE))])
        position = np.arange(kv_len - q_len)
        self.pool[0, pages[position // PAGE], :, position % PAGE] = np.concatenate([k, v], -1)[position]
        self.rows.append((pages, kv_len, q_len))
        self.tokens.append((q[-q_len:], k[-q_len:], v[-q_len:]))
        return self

    def run(self, num_decodes: int | None = None, **options) -> list[np.ndarray]:
        """Each row's output [q_len, N, H]; by default all rows of one token are decode rows."""
        tables = np.zeros((self.num_rows, self.width), np.int32)
        kv_lens = np.zeros(self.num_rows, np.int32)
        q_lens = np.zeros(self.num_rows, np.int32)
        for row, (pages, kv_len, q_len) in enumerate(self.rows):
            tables[row, : len(pages)], kv_lens[row], q_lens[row] = pages, kv_len, q_len
        ends = np.concatenate([[0], np.cumsum(q_lens)])
        padding = ((0, self.num_tokens - ends[-1]), (0, 0), (0, 0))
        q, k, v = (jnp.asarray(np.pad(np.concatenate(part), padding)) for part in zip(*self.tokens, strict=True))
        counts = (len(self.rows), int((q_lens == 1).sum()) if num_decodes is None else num_decodes)
        meta = make_meta(
            *(jnp.asarray(x, jnp.int32) for x in (ends, kv_lens, tables, np.zeros(self.num_rows), *counts)),
            num_tokens=self.num_tokens,
            page_size=PAGE,
        )
        arguments = {"q": q, "k": k, "v": v, "pool": jnp.asarray(self.pool), "layer": jnp.int32(0), "meta": meta}
        spec = AttentionSpec(0.125, backend="xla", block=BLOCK)
        o = attend(arguments | {"spec": spec}, **options).o
        return [o[start:end] for start, end in pairwise(ends)]


WINDOWED = {"window": 21, "softcap": 5.0}


def test_a_decode_row_is_the_same_alone_among_others_and_in_a_wider_table():
    bucket = {"num_tokens": 6, "num_rows": 6}
    alone = Batch(**bucket, width=16).add(1, 77).run(**WINDOWED)[0]
    among = Batch(**bucket, width=16, order=1).add(2, 5).add(3, 100).add(1, 77).add(4, 33).add(5, 1).add(6, 128)
    wider = Batch(**bucket, width=24, order=2).add(3, 120).add(2, 9).add(4, 90).add(6, 64).add(1, 77)
    np.testing.assert_array_equal(among.run(**WINDOWED)[2], alone)
    np.testing.assert_array_equal(wider.run(**WINDOWED)[4], alone)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("options", [{}, WINDOWED], ids=["full", "windowed"])
def test_rows_of_a_mixed_batch_are_the_same_alone_among_others_and_in_a_wider_table(options):
    bucket = {"num_tokens": 64, "num_rows": 4}
    decode, chunk = (Batch(**bucket, width=16).add(*row).run(**options)[0] for row in ((1, 77), (2, 90, 23)))
    mixed = Batch(**bucket, width=24, order=1).add(3, 110).add(1, 77).add(4, 20, 9).add(2, 90, 23).run(**options)
    np.testing.assert_array_equal(mixed[1], decode)
    np.testing.assert_array_equal(mixed[3], chunk)


def test_a_decode_row_is_the_same_in_every_bucket_of_two_rows_or_more():
    outputs = [
        Batch(num_tokens=num_tokens, num_rows=num_rows, width=16).add(3, 100).add(1, 77).run()[1]
        for num_tokens, num_rows in ((2, 2), (6, 6), (16, 16), (64, 4))
    ]
    for o in outputs[1:]:
        np.testing.assert_array_equal(o, outputs[0])


@pytest.mark.thorough
def test_a_prompt_in_chunks_is_the_prompt_in_one():
    bucket = {"num_tokens": 64, "num_rows": 4}
    whole = Batch(**bucket, width=16).add(1, 61, 61).run(**WINDOWED)[0]
    for chunks in ((32, 29), (13, 25, 23), (60, 1), (7,) * 8 + (5,)):
        start, parts = 0, []
        for q_len in chunks:
            start += q_len
            parts.append(Batch(**bucket, width=24, order=start).add(1, start, q_len).run(num_decodes=0, **WINDOWED)[0])
        np.testing.assert_array_equal(np.concatenate(parts), whole, err_msg=str(chunks))


def test_a_decoded_token_is_that_of_a_chunk_and_of_a_prompt():
    """In the batch-invariant back end, whatever else is there. The control: the fast one decodes in another order."""
    differs = []
    for backend in ("invariant", "xla"):
        asked = WINDOWED | {"backend": backend}
        whole = Batch(num_tokens=64, num_rows=4, width=16).add(1, 61, 61).run(**asked)[0]
        for end in (2, 32, 33, 40, 61):
            decoded = Batch(num_tokens=6, num_rows=6, width=24, order=end).add(2, 50).add(1, end).add(3, 100)
            chunk = Batch(num_tokens=64, num_rows=4, width=24, order=end).add(4, 90, 9).add(1, end, 2)
            tokens = decoded.run(**asked)[1][0], chunk.run(**asked)[1][1]
            differs += [backend for token in tokens if (token != whole[end - 1]).any()]
    assert set(differs) == {"xla"}


def test_another_block_of_positions_gives_other_roundings():
    """The control: another order of the same sum is seen."""
    batch = Batch(num_tokens=6, num_rows=6, width=16).add(1, 77)
    assert (batch.run()[0] != batch.run(block=replace(BLOCK, positions=16))[0]).any()
