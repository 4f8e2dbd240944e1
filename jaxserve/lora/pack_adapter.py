"""Host: `pack_adapter`: from an adapter's matrices to the content of pages, once, when it is read.

A rank block has pages only at the sites, and in the KV groups, where the adapter has matrices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.adapters.low_rank import AdapterWeights
from jaxserve.lora.packed_adapter import PackedAdapter
from pallas_kernels.lora_matmul.adapter_layout import RANKS, AdapterLayout, Site
from pallas_kernels.lora_matmul.pack_site import LowRank, pack_site


@dataclass(frozen=True, slots=True)
class DevicePart:
    """Of a matrix [outputs, inputs] those of one device."""

    inputs: np.ndarray  # int64[inputs of a device]
    outputs: np.ndarray


@dataclass(frozen=True, slots=True)
class PackTarget:
    """What adapters are packed for.

    layers: KV group of each layer, and the index in it. num_groups, layers_per_group: of the model. page_shape: (K, a,
    b) of a page of one layer on all devices. parts: by their names, of each device.
    """

    layout: AdapterLayout
    layers: tuple[tuple[int, int], ...]
    num_groups: int
    layers_per_group: int
    page_shape: tuple[int, int, int]
    dtype: Any
    parts: tuple[Mapping[str, DevicePart], ...]


def pack_adapter(weights: AdapterWeights, target: PackTarget) -> PackedAdapter:
    """An adapter of a rank that `target.layout` allows; raises ValueError where it is not finite in `target.dtype`."""
    layout, num_blocks = target.layout, -(-weights.rank // RANKS)
    where = np.zeros((num_blocks, target.num_groups, layout.num_pages), np.int32)
    for layer, name in weights.matrices:
        site = next(site for site in layout.sites.values() if name in {part.name for part in site.parts})
        where[:, target.layers[layer][0], site.pages] = 1
    num_pages = int(np.count_nonzero(where))
    where[where > 0] = np.arange(1, num_pages + 1)
    num_heads, *of_head = target.page_shape
    content = np.zeros((target.layers_per_group, num_pages, num_heads, *of_head), target.dtype)
    own_heads = num_heads // len(target.parts)
    for layer, (group, index) in enumerate(target.layers):
        for site in layout.sites.values():
            places = where[:, group, site.pages] - 1
            if (places < 0).any():
                continue
            for device, parts in enumerate(target.parts):
                rows = pack_site(site, layout.rows_per_page, num_blocks, _matrices(weights, layer, site, parts))
                pages = rows.reshape(*places.shape, own_heads, *of_head)
                content[index, places, device * own_heads : (device + 1) * own_heads] = pages
    if not np.isfinite(content).all():  # kernels multiply it by the zeros of tokens that have another adapter
        raise ValueError(f"its matrices are not finite in {target.dtype}; train it again, or use another dtype")
    return PackedAdapter(content, where, weights.folder)


def _matrices(weights: AdapterWeights, layer: int, site: Site, parts: Mapping[str, DevicePart]) -> dict[str, LowRank]:
    """A device's part of what the layer has at the site."""
    found = {part.name: weights.matrices.get((layer, part.name)) for part in site.parts}
    return {
        name: (pair.a[:, parts[name].inputs], pair.b[parts[name].outputs])
        for name, pair in found.items()
        if pair is not None
    }
