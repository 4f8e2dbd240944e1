"""Device: `Proposer`: what each way of drafting has in common, and what it is given."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from jaxtyping import Array, Float, Int32

from jaxserve.kv.kv_state import ExtraArray
from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.sampling.sampling_batch import SamplingBatch
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


class DraftRows(NamedTuple):
    """The rows of a verify bucket before a round; the last ones are padding.

    starts: the position of each row's last token, which the history has. room: the most drafts that each row may have.
    tables, first_pages: of the KV groups of each kind of layers. owners: whose earlier outputs each row may use.
    sampling: how the target draws. proposers: the number of each row's proposer, where there are several.
    """

    slots: Int32[Array, "S"]
    starts: Int32[Array, "S"]
    room: Int32[Array, "S"]
    num_seqs: Int32[Array, ""]
    owners: Int32[Array, "S"]
    tables: tuple[Int32[Array, "G S W"], ...]
    first_pages: tuple[Int32[Array, "G S"], ...]
    sampling: SamplingBatch
    proposers: Int32[Array, "S"] | None = None


class ReadTokens(NamedTuple):
    """The tokens that a mixed bucket reads, T of S rows. metas: of each kind of layers of the target."""

    tokens: Int32[Array, "T"]
    positions: Int32[Array, "T"]
    slots: Int32[Array, "S"]
    starts: Int32[Array, "S"]
    ends: Int32[Array, "S"]
    metas: tuple[AttentionMeta, ...]


class TappedTokens(NamedTuple):
    """The tokens of forward passes of the target, T of S rows, with what `tap_layers` have read of them.

    previous: the index of the token that each follows; -1: one that its row has read before. rows: of each token.
    before: the features of what each row has read before. write_slots: where the tokens' KV lies, of each kind of
    layers; in scratch for tokens of rows that have ended. end: the number of tokens that are no padding.
    """

    taps: Float[Array, "A T D"]
    tokens: Int32[Array, "T"]
    positions: Int32[Array, "T"]
    previous: Int32[Array, "T"]
    rows: Int32[Array, "T"]
    before: Float[Array, "S F"]
    write_slots: tuple[Int32[Array, "G T"], ...]
    end: Int32[Array, ""]


class Proposer(ABC):
    """A way to draft. Hashable: it is a static part of each program that drafts."""

    @property
    def parts(self) -> tuple["Proposer", ...]:
        """The proposers among which each row has one."""
        return (self,)

    @property
    def makes_trees(self) -> bool:
        """Whether its drafts have parents."""
        return False

    @property
    def drafts_late(self) -> bool:
        """Whether rows that draw late may have its drafts: it keeps nothing of tokens but the history."""
        return False

    @property
    def catches_up(self) -> bool:
        """Whether it first reads what rows have decoded without its drafts, so that `propose` takes longer then."""
        return False

    @property
    def extra_arrays(self) -> tuple[ExtraArray, ...]:
        """What it keeps of each page."""
        return ()

    @property
    def weights(self) -> Params | None:
        """The declared weights that it has in addition to the target's (`params.DRAFT`), if any."""
        return None

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """Layers of the target whose inputs it reads."""
        return ()

    @property
    def num_features(self) -> int:
        """F: the numbers of the last token that each slot has read, in `state.features`; 0: it keeps none."""
        return 0

    def depth(self, num_drafts: int) -> int:
        """Of so many drafts of a row the most that stand one after the other."""
        return num_drafts

    def read(self, params: Params, state: DeviceState, batch: ReadTokens) -> DeviceState:
        """The state after the tokens of a mixed bucket, with what later drafts need of them."""
        return state

    def read_taps(
        self, params: Params, state: DeviceState, batch: TappedTokens
    ) -> tuple[DeviceState, Float[Array, "T F"]]:
        """If it has `tap_layers`: the state after forward passes of the target, and the features of their tokens."""
        raise NotImplementedError

    @abstractmethod
    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """Up to `num_drafts` drafts of each row, of which the caller uses `rows.room`."""
