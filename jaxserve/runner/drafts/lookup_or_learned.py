"""Device: two proposers, of which each row has one: looked-up drafts, which are made in any case, or learned ones.

The learned proposer runs only in rounds in which a row has it. The host chooses (`scheduler/speculation.py`).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxserve.kv.kv_state import ExtraArray
from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.drafts.proposer import DraftRows, Proposer, ReadTokens, TappedTokens


@dataclass(frozen=True)
class LookupOrLearned(Proposer):
    """lookup: number 0, has neither weights nor KV. learned: number 1."""

    lookup: Proposer
    learned: Proposer

    @property
    def parts(self) -> tuple[Proposer, ...]:
        """See `Proposer`."""
        return (self.lookup, self.learned)

    @property
    def makes_trees(self) -> bool:
        """See `Proposer`."""
        return self.lookup.makes_trees or self.learned.makes_trees

    @property
    def extra_arrays(self) -> tuple[ExtraArray, ...]:
        """See `Proposer`."""
        return self.learned.extra_arrays

    @property
    def weights(self) -> Params | None:
        """See `Proposer`."""
        return self.learned.weights

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """See `Proposer`."""
        return self.learned.tap_layers

    @property
    def num_features(self) -> int:
        """See `Proposer`."""
        return self.learned.num_features

    def read(self, params: Params, state: DeviceState, batch: ReadTokens) -> DeviceState:
        """See `Proposer`."""
        return self.learned.read(params, state, batch)

    def read_taps(
        self, params: Params, state: DeviceState, batch: TappedTokens
    ) -> tuple[DeviceState, Float[Array, "T F"]]:
        """See `Proposer`."""
        return self.learned.read_taps(params, state, batch)

    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """See `Proposer`."""
        assert rows.proposers is not None
        is_learned = rows.proposers == 1
        room = jnp.where(is_learned, rows.room, 0)
        state, looked_up = self._as_asked(*self.lookup.propose(params, state, rows, num_drafts))

        def learn(state: DeviceState) -> tuple[DeviceState, Drafts]:
            proposed = self.learned.propose(params, state, rows._replace(room=room), num_drafts)
            return self._as_asked(*proposed)

        def leave(state: DeviceState) -> tuple[DeviceState, Drafts]:
            return state, looked_up

        state, learned = lax.cond(jnp.any(room > 0), learn, leave, state)

        def of_row(one: jax.Array, other: jax.Array) -> jax.Array:
            return jnp.where(lax.expand_dims(is_learned, range(1, one.ndim)), one, other)

        return state, jax.tree.map(of_row, learned, looked_up)

    def _as_asked(self, state: DeviceState, drafts: Drafts) -> tuple[DeviceState, Drafts]:
        """Drafts with parents, if those of the other proposer may have them."""
        return state, drafts._replace(parents=drafts.followed if self.makes_trees else None)
