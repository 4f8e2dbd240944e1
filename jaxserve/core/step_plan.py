"""Host: `StepPlan`: one step as the scheduler decides it and the runner executes it."""

from dataclasses import dataclass

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.device_ops import DeviceOp
from jaxserve.core.row_layout import SAMPLING_INDEX


@dataclass(frozen=True, slots=True)
class LateDrafts:
    """Of the rows of a `LateDraw`: how many of their drafts may be accepted, and by what each node is masked."""

    num: np.ndarray  # int32[L]
    mask_rows: np.ndarray  # int32[L, W]: after the row's own token and each of its drafts; 0 behind those that may be


@dataclass(frozen=True, slots=True)
class LateDraw:
    """What the late rows of a step draw, and by which parameters; ops are made before it.

    rows: those of `StepPlan.late_rows` that draw. Other late rows draw nothing. drafts: None where no row of the step
    has such.
    """

    rows: np.ndarray  # int64[L]
    slots: np.ndarray  # int32[L]
    sampling: np.ndarray  # int32[L, len(SAMPLING_FIELDS)]
    ops: tuple[DeviceOp, ...]
    drafts: LateDrafts | None = None


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
    proposers: np.ndarray  # int32[S]: the number of what drafts for the row, where the engine has several proposers
    num_rounds: int  # the most forward passes
    num_decodes: int
    tokens: np.ndarray  # int32[T]
    targets: np.ndarray | None  # int32[T]
    sampling: np.ndarray  # int32[S, len(SAMPLING_FIELDS)]
    extra_rows: np.ndarray  # int64[X]: rows that need more than tokens (`SlotTable.has_extras`); mostly none
    late_rows: np.ndarray  # int64[L]: rows whose token is drawn after the step, once the one before is known
    first_pages: np.ndarray  # int32[G, S]
    tables: tuple[np.ndarray, ...]  # per group int32[S, columns used]
    ops: tuple[DeviceOp, ...] = ()  # to make in this order before the step
    has_adapters: bool = False  # a row has one

    def withdraw(self, rows: np.ndarray) -> None:
        """These late rows draw nothing: what follows is known by now."""
        self.samples[rows] = False

    def limit_tokens(self, rows: np.ndarray, max_tokens: np.ndarray) -> np.ndarray:
        """These rows draw no more than so many tokens, as is known by now; returns by how many fewer than planned."""
        kept = np.minimum(self.max_tokens[rows], max_tokens)
        fewer = self.max_tokens[rows] - kept
        self.max_tokens[rows] = kept
        return fewer

    def ops_of[T](self, kind: type[T]) -> list[T]:
        """Those of one kind."""
        return [op for op in self.ops if isinstance(op, kind)]

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
    def has_late_drafts(self) -> bool:
        """Whether a late row may have drafts."""
        return self.bucket.is_verify and bool((self.max_drafts[self.late_rows] > 0).any())

    @property
    def has_pooled(self) -> bool:
        """Whether a row needs pooled hidden states."""
        return len(self.extra_rows) > 0 and bool(self.is_pooled.any())

    @property
    def is_pooled(self) -> np.ndarray:
        """bool[S]: rows that need pooled hidden states."""
        return self.sampling[:, SAMPLING_INDEX["pooling"]] > 0
