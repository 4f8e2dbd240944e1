"""Host: `BeamFrontier`: the rules of beam search: which candidates continue, and which have ended.

The rules are those of transformers 5 (`GenerationMixin._beam_search`) for one prompt, sums and scores in float32 as
there. Of equal candidates, that of the better text comes first, and within a text the lower id (transformers leaves
this to `torch.topk`); of equal scores, the text that ended first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxserve.core.sequence import TokenLogprobs


@dataclass(frozen=True, slots=True)
class BeamRules:
    """eos_ids: tokens that end a text. max_tokens: most tokens of a text. The others as in `BeamSearchParams`."""

    beam_width: int
    max_tokens: int
    eos_ids: tuple[int, ...] = ()
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    @property
    def num_candidates(self) -> int:
        """Candidates compared in each step: so many that `beam_width` of them do not end a text."""
        return max(2, 1 + len(self.eos_ids)) * self.beam_width

    def score(self, total: np.float32, num_tokens: int) -> np.float32:
        """The score of a text: its sum of log-probabilities with the length penalty."""
        return total / np.float32(num_tokens**self.length_penalty)


@dataclass(frozen=True, slots=True, eq=False)
class BeamNode:
    """A token after the node `before`. index: its index in `candidates`. total: sum of the text's log-probabilities."""

    before: "BeamNode | None"
    token: int
    index: int
    candidates: TokenLogprobs
    total: np.float32

    def path(self) -> list["BeamNode"]:
        """The nodes of the text, the first token's first."""
        return list(self._backwards())[::-1]

    def _backwards(self) -> Iterator["BeamNode"]:
        node: BeamNode | None = self
        while node is not None:
            yield node
            node = node.before


@dataclass(frozen=True, slots=True)
class EndedBeam:
    """A text that has ended: by a token of `eos_ids` (is_stop) or by its length."""

    node: BeamNode
    score: np.float32
    is_stop: bool


class BeamFrontier:
    """The running texts of one prompt, the best first, and the best of the ended ones.

    running: None is the prompt alone. ended: at most `beam_width`, the best first. is_done: the search is over.
    """

    def __init__(self, rules: BeamRules):
        self.rules = rules
        self.running: list[BeamNode | None] = [None]
        self.ended: list[EndedBeam] = []
        self.num_tokens = 0  # of each running text
        self.is_done = False

    def advance(self, candidates: list[TokenLogprobs]) -> list[tuple[int, int]]:
        """Extend the texts by a token, from `num_candidates` candidates after each running text, the likeliest first.

        Returns the texts that run now, the best first: the index of the text that each continues, and the token.
        """
        rules = self.rules
        self.num_tokens += 1
        parents, nodes = self._best(candidates)
        is_full = self.num_tokens == rules.max_tokens
        is_end = [is_full or node.token in rules.eos_ids for node in nodes]
        ended = [
            EndedBeam(node, rules.score(node.total, self.num_tokens), node.token in rules.eos_ids)
            for node, ends in zip(nodes[: rules.beam_width], is_end, strict=False)
            if ends
        ]
        self.ended = sorted(self.ended + ended, key=lambda e: -e.score)[: rules.beam_width]
        going = [i for i, ends in enumerate(is_end) if not ends][: rules.beam_width]
        self.running = [nodes[i] for i in going]
        self.is_done = not going or self._is_settled(nodes[going[0]])
        return [(parents[i], nodes[i].token) for i in going]

    def _best(self, candidates: list[TokenLogprobs]) -> tuple[list[int], list[BeamNode]]:
        """The best candidates of all running texts: the index of the text that each continues, and its node."""
        zero = np.float32(0)
        totals = np.stack(
            [c.top + (zero if b is None else b.total) for b, c in zip(self.running, candidates, strict=True)]
        )
        ids = np.stack([c.top_ids for c in candidates])
        rows = np.broadcast_to(np.arange(len(ids))[:, None], ids.shape)
        order = np.lexsort((ids.ravel(), rows.ravel(), -totals.ravel()))[: self.rules.num_candidates]
        unraveled = np.unravel_index(order, ids.shape)
        parents: list[int] = unraveled[0].tolist()
        indices: list[int] = unraveled[1].tolist()
        nodes = [
            BeamNode(self.running[b], int(ids[b, i]), i, candidates[b], np.float32(totals[b, i]))
            for b, i in zip(parents, indices, strict=True)
        ]
        return parents, nodes

    def _is_settled(self, best: BeamNode) -> bool:
        """Whether no running text can still enter the ended ones, by the criterion of `early_stopping`."""
        rules = self.rules
        if len(self.ended) < rules.beam_width:
            return False
        hopes_for_length = rules.early_stopping == "never" and rules.length_penalty > 0
        best_score = rules.score(best.total, rules.max_tokens if hopes_for_length else self.num_tokens)
        return rules.early_stopping is True or bool(best_score <= self.ended[-1].score)
