"""Device: the arguments of named workloads: adapters of random matrices in a pool whose other pages are NaN."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from pallas_kernels.lora_matmul.adapter_layout import RANKS, AdapterLayout, Site
from pallas_kernels.lora_matmul.lora_batch import LoraBatch, RowSpans
from pallas_kernels.lora_matmul.pack_site import LowRank, pack_site
from pallas_kernels.lora_matmul.workloads import LoraWorkload

NUM_LAYERS, NUM_GROUPS, LAYER, GROUP = 2, 2, 1, 1


@dataclass(frozen=True)
class LoraArguments:
    """Arguments of `lora_matmul`, and what it must add: the matrices of each place, [places][part]."""

    x: Any
    pool: Any
    layer: Any
    group: Any
    batch: LoraBatch
    site: Site
    matrices: tuple[dict[str, LowRank], ...]

    def expected(self) -> list[np.ndarray]:
        """[T, outputs] of each part, float64, of the values that x and the pool hold."""
        x: np.ndarray = np.asarray(self.x, np.float64)
        places: np.ndarray = np.asarray(self.batch.places)
        added = [np.zeros((len(x), part.num_outputs)) for part in self.site.parts]
        for t, place in enumerate(map(int, places)):
            for y, part in zip(added, self.site.parts, strict=True):
                if part.name in self.matrices[place]:
                    a, b = self.matrices[place][part.name]
                    y[t] = x[t] @ np.asarray(a, np.float64).T @ np.asarray(b, np.float64).T
        return added


def make_arguments(workload: LoraWorkload, seed: int = 0) -> LoraArguments:
    """Place p has an adapter of rank workload.ranks[p - 1]; of rank 0 it has nothing at this site."""
    rng, dtype = np.random.default_rng(seed), jnp.dtype(workload.dtype)
    num_heads, page, width = workload.page_shape
    layout = AdapterLayout(workload.sites, num_heads * page, width, max(*workload.ranks, 1), len(workload.ranks))
    site = layout.sites[workload.site]
    num_pages = 1 + len(workload.ranks) * layout.max_blocks * layout.num_pages
    pool = np.full((NUM_LAYERS, num_pages, num_heads, page, width), np.nan, dtype)
    tables = np.zeros((len(workload.ranks) + 1, layout.max_blocks, NUM_GROUPS, layout.num_pages), np.int32)
    free = rng.permutation(np.arange(1, num_pages))
    matrices = [dict[str, LowRank]()]
    for place, rank in enumerate(workload.ranks, 1):
        of_place = {
            part.name: (_random(rng, (rank, part.num_inputs), dtype), _random(rng, (part.num_outputs, rank), dtype))
            for part in site.parts
            if rank and part.name not in workload.untouched
        }
        matrices.append(of_place)
        num_blocks = -(-rank // RANKS)
        ids, free = np.split(free, [num_blocks * site.num_pages])
        content = pack_site(site, num_heads * page, num_blocks, of_place).astype(dtype)
        pool[LAYER, ids] = content.reshape(len(ids), num_heads, page, width)
        tables[place, :num_blocks, GROUP, site.pages] = ids.reshape(num_blocks, site.num_pages)
    places, spans = _places(workload, rng)
    x = _random(rng, (workload.num_tokens, site.parts[0].num_inputs), dtype)
    batch = LoraBatch(jnp.asarray(places), jnp.asarray(tables), spans)
    where = jnp.int32(LAYER), jnp.int32(GROUP)
    return LoraArguments(jnp.asarray(x), jnp.asarray(pool), *where, batch, site, tuple(matrices))


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return (rng.standard_normal(shape) * max(shape[-1], 1) ** -0.5).astype(dtype)


def _places(workload: LoraWorkload, rng: np.random.Generator) -> tuple[np.ndarray, RowSpans | None]:
    num_places = len(workload.ranks) + 1
    if not workload.row_lens:
        return rng.integers(0, num_places, workload.num_tokens).astype(np.int32), None
    lens = np.array(workload.row_lens)
    num_seqs, num_decodes = len(lens), int(np.argmax(np.append(lens != 1, True)))
    of_rows = rng.integers(0, num_places, num_seqs)
    places = np.zeros(workload.num_tokens, np.int32)
    places[: lens.sum()] = np.repeat(of_rows, lens)
    ends = np.append(np.cumsum(lens), [lens.sum()] * workload.num_padding_rows)
    cu_q_lens = jnp.asarray(np.append(0, ends), jnp.int32)
    return places, RowSpans(cu_q_lens, jnp.int32(num_seqs), jnp.int32(num_decodes), workload.num_tokens)
