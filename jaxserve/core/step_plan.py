"""Host: `StepPlan`: one step as the scheduler decides it and the runner executes it."""

from dataclasses import dataclass

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.row_layout import SAMPLING_INDEX


@dataclass(frozen=True, slots=True)
class SlotEdits:
    """Changes to the logits of one slot, which stay on the device until they are replaced.

    `logits[ids] += bias` while the position to draw is below `until` (logit_bias, bad_words, min_tokens). mask: bitmask
    of allowed tokens for the slot's mask row (slot + 1).
    """

    slot: int
    ids: np.ndarray  # int32[E]
    bias: np.ndarray  # float32[E]
    until: np.ndarray  # int32[E]
    mask: np.ndarray | None  # uint32[ceil(V / 32)], bit i % 32 of word i // 32 allows token i


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """Tokens that a slot does not compute, as their KV is cached. is_counted: its penalties count them."""

    slot: int
    tokens: np.ndarray  # int32[n]: from the first position on
    prompt_len: int
    is_counted: bool


@dataclass(frozen=True, slots=True)
class Forks:
    """Copies to make before the step: partial pages, and the counts, edits and mask rows of slots."""

    src_pages: np.ndarray  # int32[C]
    dst_pages: np.ndarray  # int32[C]
    src_slots: np.ndarray  # int32[F]
    dst_slots: np.ndarray  # int32[F]


@dataclass(frozen=True, slots=True)
class PageDrops:
    """Copies to make before all else of a step: sinks, and the rest of the page behind them, to a page of their own.

    num_dropped: tokens between the sinks and that rest, from now on.
    """

    groups: np.ndarray  # int32[D]
    sink_pages: np.ndarray  # int32[D]
    rest_pages: np.ndarray  # int32[D]
    own_pages: np.ndarray  # int32[D]
    num_dropped: np.ndarray  # int32[D]


@dataclass(frozen=True, slots=True)
class PageSave:
    """Pages of the pool to copy to host memory before the step."""

    pages: np.ndarray  # int32[C]
    host_pages: np.ndarray  # int32[C]


@dataclass(frozen=True, slots=True)
class PageLoad:
    """Pages of host memory to copy to the pool before the step."""

    host_pages: np.ndarray  # int32[C]
    pages: np.ndarray  # int32[C]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """S rows with T tokens. Rows with one token come first (`num_decodes` of them), longer chunks follow.

    tokens: row by row; -1 stands for the slot's last token, which only the device has yet.
    starts: KV position of each row's first token; -1 stands for the slot's length on the device.
    targets: the prompt token after each token of rows that need prompt log-probabilities, else -1; None without any.
    tables[g][s, j]: id of page first_pages[g, s] + j of row s, for KV group g.
    """

    step_id: int
    bucket: Bucket
    slots: np.ndarray  # int32[S]
    epochs: np.ndarray  # int32[S]
    query_lens: np.ndarray  # int32[S]
    starts: np.ndarray  # int32[S]
    samples: np.ndarray  # bool[S]: the row draws a token after its last one
    max_tokens: np.ndarray  # int32[S]: the most tokens that the row draws, one after the other; 1 in mixed buckets
    max_drafts: np.ndarray  # int32[S]: the most drafts of the row in a round; 0 in buckets other than verify buckets
    num_rounds: int  # the most forward passes
    num_decodes: int
    tokens: np.ndarray  # int32[T]
    targets: np.ndarray | None  # int32[T]
    sampling: np.ndarray  # int32[S, len(SAMPLING_FIELDS)]
    extra_rows: np.ndarray  # int64[X]: rows that need more than tokens (`SlotTable.has_extras`); mostly none
    first_pages: np.ndarray  # int32[G, S]
    tables: tuple[np.ndarray, ...]  # per group int32[S, columns used]
    drops: PageDrops | None = None
    edits: tuple[SlotEdits, ...] = ()
    cached_prefixes: tuple[CachedPrefix, ...] = ()
    forks: Forks | None = None
    transfers: tuple[PageSave | PageLoad, ...] = ()  # to make in this order, before the forks

    @property
    def num_rows(self) -> int:
        return len(self.slots)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def max_computed(self) -> np.ndarray:
        """int32[S]: the most positions that each row computes."""
        return self.query_lens + self.max_tokens - 1

    def num_computed(self, num_tokens: np.ndarray) -> np.ndarray:
        """int32[S]: positions that the rows have computed which drew `num_tokens` (`StepOutcome`)."""
        return np.where(self.samples, self.query_lens - 1 + num_tokens, self.query_lens)

    @property
    def num_targets(self) -> int:
        """Prompt log-probabilities to compute."""
        return 0 if self.targets is None else int(np.count_nonzero(self.targets >= 0))

    @property
    def has_logprobs(self) -> bool:
        """Whether a row needs log-probabilities of the tokens that it draws."""
        column = SAMPLING_INDEX["num_logprobs"]
        return len(self.extra_rows) > 0 and bool((self.sampling[self.extra_rows, column] >= 0).any())

    @property
    def has_pooled(self) -> bool:
        """Whether a row needs pooled hidden states."""
        return len(self.extra_rows) > 0 and bool(self.is_pooled.any())

    @property
    def is_pooled(self) -> np.ndarray:
        """bool[S]: rows that need pooled hidden states."""
        return self.sampling[:, SAMPLING_INDEX["pooling"]] > 0
