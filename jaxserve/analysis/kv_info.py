"""Wiring: the bytes of a model's KV, by KV group and by the length of a sequence."""

from dataclasses import dataclass
from typing import Any

from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.kv_heads import kv_layout
from pallas_kernels.page_layouts import ROWS, PageLayout

LENGTHS = (1024, 8192, 32_768)  # and the whole context


@dataclass(frozen=True, slots=True)
class KVGroupInfo:
    """The KV groups of one layer kind. bytes_per_token: of all of them, as long as they keep the position."""

    kind: str
    window: int | None
    num_groups: int
    layers_per_group: int
    bytes_per_token: int


@dataclass(frozen=True, slots=True)
class KVInfo:
    """KV memory on one device. sequence_pages, sequence_bytes: of a sequence by length; windows free early pages."""

    page_size: int
    bytes_per_token: int
    groups: tuple[KVGroupInfo, ...]
    sequence_pages: dict[int, int]
    sequence_bytes: dict[int, int]


def describe_kv(model: ModelConfig, dtype: Any, page_size: int, max_len: int, pages: PageLayout = ROWS) -> KVInfo:
    """KV memory of sequences of up to `max_len` tokens while they decode, with all heads on one device."""
    groups = model.kv_groups(page_size)
    page_bytes = kv_layout(model, abstract_mesh(1), page_size, dtype, pages).page_bytes
    infos = tuple(
        KVGroupInfo(
            kind=kind.name,
            window=kind.attention.window,
            num_groups=model.num_groups(i),
            layers_per_group=model.layers_per_group,
            bytes_per_token=model.num_groups(i) * page_bytes // page_size,
        )
        for i, kind in enumerate(model.kinds)
    )
    lengths = sorted({n for n in LENGTHS if n < max_len} | {max_len})
    pages_by_length = {n: groups.num_pages(n, n) for n in lengths}
    bytes_by_length = {n: num_pages * page_bytes for n, num_pages in pages_by_length.items()}
    return KVInfo(page_size, sum(info.bytes_per_token for info in infos), infos, pages_by_length, bytes_by_length)
