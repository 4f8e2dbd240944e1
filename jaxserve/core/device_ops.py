"""Host: `DeviceOp`: changes to pages and slots that a plan makes before its step, in the order of the plan.

Pages are copied first, as forks read them; forks copy the slot state of their source, which later ops then change.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class SlotEdits:
    """Changes to the logits of one slot, which stay on the device until they are replaced.

    `logits[ids] += bias` while the position to draw is below `until` (logit_bias, bad_words, min_tokens).
    """

    slot: int
    ids: np.ndarray  # int32[E]
    bias: np.ndarray  # float32[E]
    until: np.ndarray  # int32[E]


@dataclass(frozen=True, slots=True)
class MaskUpload:
    """The allowed tokens of a mask row; row 0 allows all and does not change."""

    row: int
    words: np.ndarray  # uint32[ceil(V / 32)], bit i % 32 of word i // 32 allows token i


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """Tokens that a slot does not compute, as their KV is cached. is_counted: its penalties count them."""

    slot: int
    tokens: np.ndarray  # int32[n]: from the first position on
    prompt_len: int
    is_counted: bool


@dataclass(frozen=True, slots=True)
class Forks:
    """Copies: partial pages, and the counts and edits of slots."""

    src_pages: np.ndarray  # int32[C]
    dst_pages: np.ndarray  # int32[C]
    src_slots: np.ndarray  # int32[F]
    dst_slots: np.ndarray  # int32[F]


@dataclass(frozen=True, slots=True)
class PageDrops:
    """Copies: sinks, and the rest of the page behind them, to a page of their own.

    num_dropped: tokens between the sinks and that rest, from now on.
    """

    groups: np.ndarray  # int32[D]
    sink_pages: np.ndarray  # int32[D]
    rest_pages: np.ndarray  # int32[D]
    own_pages: np.ndarray  # int32[D]
    num_dropped: np.ndarray  # int32[D]


@dataclass(frozen=True, slots=True)
class PageSave:
    """Pages of the pool to copy to host memory."""

    pages: np.ndarray  # int32[C]
    host_pages: np.ndarray  # int32[C]


@dataclass(frozen=True, slots=True)
class PageLoad:
    """Pages of host memory to copy to the pool."""

    host_pages: np.ndarray  # int32[C]
    pages: np.ndarray  # int32[C]


@dataclass(frozen=True, slots=True)
class EarlierTokens:
    """Tokens of an ended sequence that later ones may draft from, and the place of each in the ring of such tokens."""

    owner: int
    tokens: np.ndarray  # int32[n]; -1 ends a text
    places: np.ndarray  # int32[n]


@dataclass(frozen=True, slots=True)
class AdapterLoad:
    """An adapter to copy from host memory to pages of the pool, and what its place refers to from now on.

    content: numbers as they lie in N pages of all layers of a KV group, [Lg, N, K, a, b]. table: the pages of each rank
    block and KV group, as `pallas_kernels.lora_matmul.adapter_layout` has them; 0 where the adapter has nothing.
    """

    place: int  # from 1
    pages: np.ndarray  # int32[N]
    content: np.ndarray
    table: np.ndarray  # int32[B, G, n]


DeviceOp = PageDrops | PageSave | PageLoad | AdapterLoad | Forks | SlotEdits | MaskUpload | CachedPrefix | EarlierTokens
