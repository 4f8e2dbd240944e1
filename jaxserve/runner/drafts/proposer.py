"""Device: `Proposer`: what each way of drafting has in common."""

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Int32

from jaxserve.runner.drafts.draft_tree import Drafts


@runtime_checkable  # for the tests' runtime type check
class Proposer(Protocol):
    """A way to draft. Hashable: it is a static part of each program that drafts.

    makes_trees: its drafts have parents.
    """

    @property
    def makes_trees(self) -> bool: ...

    def propose(self, history: Int32[Array, "S H"], lens: Int32[Array, "S"], num_drafts: int) -> Drafts:
        """Drafts of rows whose tokens so far are history[s, : lens[s]], up to `num_drafts` each."""
        ...
