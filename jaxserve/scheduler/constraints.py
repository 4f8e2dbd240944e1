"""Host: `Constraints`: the grammars of sequences, and the masks of tokens that may follow them.

    commit of step t    tokens of all constrained rows ──▶ matchers ──▶ forced tokens, masks, ends
    draw of step t+1    mask of each row ──▶ mask row on the device

Both happen while the forward pass of step t+1 runs (`late_rows.py`).
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from typing import Protocol

import numpy as np

from jaxserve.constrained.matchers import Advance
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.core.sequence import Sequence


class GrammarMatchers(Protocol):
    """A grammar and a position in it for each sequence (`jaxserve.constrained`)."""

    def start(
        self, sequence_id: int, params: StructuredOutputsParams, eos_ids: tuple[int, ...], *, forces: bool
    ) -> None:
        """Begin a sequence. eos_ids: allowed where the grammar may end. forces: whether tokens are forced."""
        ...

    def is_ready(self, sequence_id: int) -> bool:
        """Whether `advance` need not wait for the sequence's grammar; from its start on."""
        ...

    def advance(self, tokens: Mapping[int, SequenceOf[int] | None]) -> Mapping[int, Advance]:
        """Consume the tokens of each sequence. None: there are none, and none is forced."""
        ...

    def along(self, drafts: Mapping[int, SequenceOf[int]]) -> Mapping[int, tuple[int, SequenceOf[np.ndarray]]]:
        """Of each sequence: how many drafts are allowed one after the other, and the masks before the first and after
        each of these. A draft that ends the text is not allowed. The sequences stay where they are."""
        ...

    def drop(self, sequence_id: int) -> None:
        """Forget a sequence."""
        ...


MAX_PREPARED = 64  # grammars that are taken to be compiled still, half of those that `jaxserve.constrained` keeps


class Constraints:
    """Knows the mask after the tokens of each sequence that has started, once it was asked for or has advanced."""

    def __init__(self, matchers: GrammarMatchers):
        self._matchers = matchers
        self._trials: dict[str, int] = {}  # sequences without a request, negative ids, whose grammars are compiled
        self._num_trials = 0
        self._prepared = OrderedDict[str, None]()  # grammars that were compiled lately
        self._masks: dict[int, np.ndarray | None] = {}  # by sequence id; None: not known yet
        self._allowed: dict[int, np.ndarray] = {}  # by sequence id, where the request allows some tokens only
        self._may_end = set[int]()  # sequences whose text is in its form as it is
        self._ends: dict[int, str | None] = {}  # reasons, by sequence id

    def prepare(self, params: StructuredOutputsParams) -> bool:
        """Whether sequences with this constraint can begin; else its grammar is being compiled."""
        key = params.key
        if key not in self._prepared:
            if key not in self._trials:
                self._num_trials += 1  # ids are not used again: the process may speak of a dropped trial later
                self._trials[key] = -self._num_trials
                self._matchers.start(self._trials[key], params, (), forces=False)
            if not self._matchers.is_ready(self._trials[key]):
                return False
            self._matchers.drop(self._trials.pop(key))
            self._prepared[key] = None
            if len(self._prepared) > MAX_PREPARED:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(key)
        return True

    def forget_trials(self) -> None:
        """No sequence waits for a grammar any more: those that did have ended."""
        while self._trials:
            self._matchers.drop(self._trials.popitem()[1])

    def begin(self, sequence: Sequence, allowed: np.ndarray | None, *, forces: bool) -> None:
        """A sequence has got a slot: if it is its first, follow it from now on. allowed: uint32[ceil(V / 32)], the
        tokens to which its request limits it."""
        if sequence.sequence_id in self._masks:
            return
        request = sequence.request
        assert request.constraint is not None
        eos_ids = () if request.params.ignore_eos else request.eos_ids
        self._masks[sequence.sequence_id] = None
        if allowed is not None:
            self._allowed[sequence.sequence_id] = allowed
        self._matchers.start(sequence.sequence_id, request.constraint, eos_ids, forces=forces)

    def advance(self, tokens: Mapping[int, SequenceOf[int] | None]) -> Mapping[int, Advance]:
        """Consume what was appended to sequences, by their ids."""
        found = self._matchers.advance(tokens)
        for sequence_id, advance in found.items():
            self._masks[sequence_id] = advance.mask
            (self._may_end.add if advance.may_end else self._may_end.discard)(sequence_id)
            if advance.error is not None:
                self._ends[sequence_id] = advance.error
        return found

    def masks(self, sequence_ids: Iterable[int]) -> dict[int, np.ndarray]:
        """uint32[ceil(V / 32)] of each: what grammar and request allow after its tokens. Without those that cannot go
        on."""
        going_on = [sequence_id for sequence_id in sequence_ids if sequence_id not in self._ends]
        if unknown := [sequence_id for sequence_id in going_on if self._masks[sequence_id] is None]:
            self.advance(dict.fromkeys(unknown))
        known = ((sequence_id, self._masks[sequence_id]) for sequence_id in going_on)
        return {i: self._within(i, mask) for i, mask in known if mask is not None and i not in self._ends}

    def masks_along(self, drafts: Mapping[int, SequenceOf[int]]) -> dict[int, SequenceOf[np.ndarray]]:
        """The same after each draft of a sequence, up to the first that its grammar does not allow."""
        found = self._matchers.along(drafts)
        return {i: [self._within(i, mask) for mask in masks[1:]] for i, (_, masks) in found.items()}

    def end(self, sequence_id: int, reason: str) -> None:
        """A sequence cannot go on: it ends at the next commit, for this reason unless its text is in its form."""
        self._ends[sequence_id] = None if sequence_id in self._may_end else reason

    def take_ends(self) -> list[tuple[int, str | None]]:
        """Sequences that cannot go on, and why, None: their text is in its form; each once."""
        ends, self._ends = self._ends, {}
        return list(ends.items())

    def drop(self, sequence_id: int) -> None:
        """A sequence has ended."""
        if sequence_id in self._masks:
            del self._masks[sequence_id]
            self._allowed.pop(sequence_id, None)
            self._may_end.discard(sequence_id)
            self._ends.pop(sequence_id, None)
            self._matchers.drop(sequence_id)

    def _within(self, sequence_id: int, mask: np.ndarray) -> np.ndarray:
        allowed = self._allowed.get(sequence_id)
        return mask if allowed is None else mask & allowed
