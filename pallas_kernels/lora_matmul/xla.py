"""Device: `shrink` and `expand` by XLA: of rows with one token by the pages of each row, of longer rows in tiles.

A row with one token reads its adapter's pages, however many rows have the same adapter. A tile is some tokens of one
row, hence of one adapter.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Float32, Int

from pallas_kernels.lora_matmul.adapter_layout import RANKS, Site
from pallas_kernels.lora_matmul.lora_batch import LoraBatch, RowSpans

TILE = 64  # tokens; the pages of an adapter are read once a tile

Sums = Float32[Array, "T parts R"]


def shrink(
    x: Float[Array, "T I"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    batch: LoraBatch,
    site: Site,
) -> Sums:
    """See `api.shrink`."""
    blocks, num_ranks = _in_blocks(x, site.width), pages.shape[1] * RANKS

    def of_rows(x: jax.Array, places: jax.Array) -> jax.Array:
        def add_block(c: jax.Array, sums: jax.Array) -> jax.Array:
            rows, has_block = _pages_of(pool, layer, pages[places, c])
            parts = [
                (x[:, :, None] * _blocks(rows, part.first_a, part.num_inputs, site.width)).sum(1).sum(-1)
                for part in site.parts
            ]
            of_block = jnp.where(has_block[:, None, None], jnp.stack(lax.optimization_barrier(parts), 1), 0)
            return lax.dynamic_update_slice_in_dim(sums, of_block, c * RANKS, 2)

        sums = jnp.zeros((len(x), len(site.parts), num_ranks), jnp.float32)
        return lax.fori_loop(0, jnp.max(batch.num_blocks[places]), add_block, sums)

    def of_tile(x: jax.Array, place: jax.Array) -> jax.Array:
        def add_block(c: jax.Array, sums: jax.Array) -> jax.Array:
            rows, has_block = _pages_of(pool, layer, pages[place, c])
            parts = [
                jnp.einsum(
                    "tiw,irw->tr", x, _blocks(rows, part.first_a, part.num_inputs, site.width), precision="highest"
                )
                for part in site.parts
            ]
            of_block = jnp.where(has_block, jnp.stack(parts, 1), 0)
            return lax.dynamic_update_slice_in_dim(sums, of_block, c * RANKS, 2)

        sums = jnp.zeros((len(x), len(site.parts), num_ranks), jnp.float32)
        return lax.fori_loop(0, batch.num_blocks[place], add_block, sums)

    return _by_rows_and_tiles(batch, blocks, of_rows, of_tile)


def expand(
    sums: Sums,
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    batch: LoraBatch,
    site: Site,
) -> tuple[Float32[Array, "T _"], ...]:
    """See `api.expand`."""

    def zeros(num_tokens: int) -> tuple[jax.Array, ...]:
        sizes = [-(-part.num_outputs // site.width) for part in site.parts]
        return tuple(jnp.zeros((num_tokens, size, site.width), jnp.float32) for size in sizes)

    def of_rows(sums: jax.Array, places: jax.Array) -> tuple[jax.Array, ...]:
        def add_block(c: jax.Array, added: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            rows, has_block = _pages_of(pool, layer, pages[places, c])
            scaled = lax.dynamic_slice_in_dim(sums, c * RANKS, RANKS, 2)
            parts = list[jax.Array]()
            for i, (part, y) in enumerate(zip(site.parts, added, strict=True)):
                b = _blocks(rows, part.first_b, part.num_outputs, site.width)
                # Written as a sum, it is computed along the width; as a product, XLA on CPU takes five times as long.
                terms = [scaled[:, i, rank, None, None] * b[:, :, rank] for rank in range(RANKS)]
                parts.append(y + jnp.where(has_block[:, None, None], sum(terms[1:], terms[0]), 0))
            return tuple(lax.optimization_barrier(parts))

        return lax.fori_loop(0, jnp.max(batch.num_blocks[places]), add_block, zeros(len(sums)))

    def of_tile(sums: jax.Array, place: jax.Array) -> tuple[jax.Array, ...]:
        def add_block(c: jax.Array, added: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            rows, has_block = _pages_of(pool, layer, pages[place, c])
            scaled = lax.dynamic_slice_in_dim(sums, c * RANKS, RANKS, 2)
            parts = list[jax.Array]()
            for i, (part, y) in enumerate(zip(site.parts, added, strict=True)):
                b = _blocks(rows, part.first_b, part.num_outputs, site.width)
                of_block = jnp.einsum("tr,irw->tiw", scaled[:, i], b, precision="highest")
                parts.append(y + jnp.where(has_block, of_block, 0))
            return tuple(parts)

        return lax.fori_loop(0, batch.num_blocks[place], add_block, zeros(len(sums)))

    added = _by_rows_and_tiles(batch, sums, of_rows, of_tile)
    return tuple(y.reshape(len(y), -1)[:, : part.num_outputs] for y, part in zip(added, site.parts, strict=True))


def _by_rows_and_tiles[Out](
    batch: LoraBatch,
    tokens: Float[Array, "T *_"],
    of_rows: Callable[[jax.Array, jax.Array], Out],
    of_tile: Callable[[jax.Array, jax.Array], Out],
) -> Out:
    """Of each token what `of_rows(tokens, places)` or, in a long row, `of_tile(tokens, place)` gives; results are trees
    of arrays with an entry for each token."""
    spans = batch.spans
    if spans is None:
        return of_rows(tokens, batch.places)
    num_tokens, size = len(tokens), min(TILE, spans.longest)
    num_rows = min(len(spans.cu_q_lens) - 1, num_tokens)
    is_alone = jnp.arange(num_rows) < spans.num_decodes
    alone = of_rows(tokens[:num_rows], jnp.where(is_alone, batch.places[:num_rows], 0))

    def lengthened(a: jax.Array, num: int) -> jax.Array:
        return jnp.pad(a, [(0, num)] + [(0, 0)] * (a.ndim - 1))

    padded = lengthened(tokens, size)

    def add_tile(out: Out, start: jax.Array, length: jax.Array, place: jax.Array) -> Out:
        of_all = of_tile(lax.dynamic_slice_in_dim(padded, start, size), place)
        is_own = jnp.arange(size) < length

        def put(a: jax.Array, tile: jax.Array) -> jax.Array:
            # Zeros behind the row's end lie where later tiles are put.
            own = jnp.where(is_own.reshape(-1, *[1] * (tile.ndim - 1)), tile, 0)
            return lax.dynamic_update_slice_in_dim(a, own, start, 0)

        return jax.tree.map(put, out, of_all)

    def padded_rows(a: jax.Array) -> jax.Array:
        return lengthened(a, num_tokens - num_rows + size)

    out = _over_tiles(spans, batch.places, size, add_tile, jax.tree.map(padded_rows, alone))

    def whole(a: jax.Array) -> jax.Array:
        return a[:num_tokens]

    return jax.tree.map(whole, out)


def _over_tiles[Out](
    spans: RowSpans,
    places: Int[Array, "T"],
    size: int,
    add: Callable[[Out, jax.Array, jax.Array, jax.Array], Out],
    out: Out,
) -> Out:
    """add(out, start, length, place) for each tile of the long rows that have an adapter, in the order of tokens."""
    begins, ends = spans.cu_q_lens[:-1], spans.cu_q_lens[1:]
    row = jnp.arange(len(begins))
    places = places[jnp.minimum(begins, len(places) - 1)]
    has_tiles = (row >= spans.num_decodes) & (row < spans.num_seqs) & (places > 0)
    counts = jnp.where(has_tiles, (ends - begins + size - 1) // size, 0)
    last = jnp.cumsum(counts, dtype=jnp.int32)

    def of_tile(i: jax.Array, out: Out) -> Out:
        row = jnp.searchsorted(last, i, side="right", method="compare_all")
        start = begins[row] + (i - last[row] + counts[row]) * size
        return add(out, start, jnp.minimum(size, ends[row] - start), places[row])

    return lax.fori_loop(0, last[-1], of_tile, out)


def _pages_of(
    pool: jax.Array, layer: jax.Array, pages: Int[Array, "*T n"]
) -> tuple[Float[Array, "*T rows W2"], Bool[Array, "*T"]]:
    """The rows of these pages, and whether there are such: of the scratch page, what it holds."""
    # Without a barrier pages would be read from the pool again for each product that uses them.
    content = lax.optimization_barrier(pool[layer, pages])
    return content.reshape(*pages.shape[:-1], -1, pool.shape[-1]), pages[..., 0] > 0


def _blocks(rows: Float[Array, "*T rows W2"], first: int, size: int, width: int) -> Float32[Array, "*T blocks 8 W2"]:
    num_blocks = -(-size // width)
    own = rows[..., first : first + num_blocks * RANKS, :]
    return own.reshape(*rows.shape[:-2], num_blocks, RANKS, width).astype(jnp.float32)


def _in_blocks(x: Float[Array, "T I"], width: int) -> Float32[Array, "T blocks W2"]:
    padded = jnp.pad(x, ((0, 0), (0, -x.shape[1] % width)))
    return padded.reshape(len(x), -1, width).astype(jnp.float32)
