"""Device: rules by which a draft is accepted, other than by being the token that the target draws.

Each rule chooses the token after every node of a row: a draft that it accepts, or another token. What then matches is
accepted (`acceptance.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.sampling.probabilities import draw_index
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.seeded_random import ACCEPTANCE, RESIDUAL, row_words, uniforms
from jaxserve.sampling.token_law import token_law

# (function of rows, rows) -> its results: see `row_sharding.shard_rows`
OfRows = Callable[[Callable[..., Any], tuple[Any, ...]], Any]


class AcceptanceRule(ABC):
    """A rule. Hashable: it is a static part of each program that drafts."""

    @abstractmethod
    def choose(
        self,
        of_rows: OfRows,
        logits: Float[Array, "R V"],
        sampling: SamplingBatch,
        positions: Int32[Array, "R"],
        drafts: Drafts,
        drawn: Int32[Array, "R"],
    ) -> Int32[Array, "R"]:
        """The token after each node, R = S·W. logits: processed. positions: of these tokens. drawn: by the target."""


@dataclass(frozen=True)
class RejectionSampling(AcceptanceRule):
    """A draft x of law q is accepted with probability min(1, p(x) / q(x)); after a rejected one the token is drawn from
    (p - q)⁺, so that each token has the target's law p (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv
    2302.01318). For chains whose laws are known (`Drafts.laws`)."""

    @jax.named_scope("accept")
    def choose(
        self,
        of_rows: OfRows,
        logits: Float[Array, "R V"],
        sampling: SamplingBatch,
        positions: Int32[Array, "R"],
        drafts: Drafts,
        drawn: Int32[Array, "R"],
    ) -> Int32[Array, "R"]:
        """See `AcceptanceRule`."""
        assert drafts.laws is not None
        num_drafts = drafts.tokens.shape[1]
        is_followed = jnp.arange(1 + num_drafts, dtype=jnp.int32)[None] < drafts.num[:, None]
        following = jnp.pad(drafts.tokens, ((0, 0), (0, 1)))
        laws = jnp.pad(drafts.laws, ((0, 0), (0, 1), (0, 0))).reshape(len(drawn), -1)

        def of_row(
            logits: jax.Array,
            sampling: SamplingBatch,
            positions: jax.Array,
            q: jax.Array,
            draft: jax.Array,
            is_followed: jax.Array,
            drawn: jax.Array,
        ) -> jax.Array:
            p = token_law(logits, sampling)
            chance, other_chance = (
                uniforms(row_words(sampling, positions, purpose))[0] for purpose in (ACCEPTANCE, RESIDUAL)
            )
            of_draft = draft[:, None]
            p_draft, q_draft = (jnp.take_along_axis(law, of_draft, axis=1)[:, 0] for law in (p, q))
            # Nothing is left of p where q is it but for rounding, or where q is no law: a draft model may overflow.
            rest = jnp.maximum(p - q, 0.0)
            other = jnp.where(rest.sum(axis=1) > 0, draw_index(rest, other_chance), drawn)
            return jnp.where(is_followed, jnp.where(chance * q_draft < p_draft, draft, other), drawn)

        rows = logits, sampling, positions, laws, following.reshape(-1), is_followed.reshape(-1), drawn
        return of_rows(of_row, rows)


@dataclass(frozen=True)
class TypicalAcceptance(AcceptanceRule):
    """A draft x is accepted if p(x) > min(threshold, alpha · exp(-H(p))), p the target's law and H its entropy in nats:
    what the target might well have said (Cai et al., arXiv 2401.10774, section 2.3.1). Tokens do not have the target's
    law. Of a tree the longest accepted path is taken, at each node the likelier of equally long ones."""

    threshold: float
    alpha: float

    @jax.named_scope("accept")
    def choose(
        self,
        of_rows: OfRows,
        logits: Float[Array, "R V"],
        sampling: SamplingBatch,
        positions: Int32[Array, "R"],
        drafts: Drafts,
        drawn: Int32[Array, "R"],
    ) -> Int32[Array, "R"]:
        """See `AcceptanceRule`."""
        num_rows, num_drafts = drafts.tokens.shape
        candidates = jnp.repeat(drafts.tokens, 1 + num_drafts, axis=0)

        def of_row(logits: jax.Array, sampling: SamplingBatch, candidates: jax.Array) -> jax.Array:
            p = token_law(logits, sampling)
            entropy = -jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.maximum(p, jnp.float32(1e-38))), 0.0), axis=1)
            least = jnp.minimum(self.threshold, self.alpha * jnp.exp(-entropy))
            found = jnp.take_along_axis(p, candidates, axis=1)
            return jnp.where(found > least[:, None], found, 0.0)

        chances = of_rows(of_row, (logits, sampling, candidates)).reshape(num_rows, 1 + num_drafts, num_drafts)
        own = jnp.take_along_axis(chances, drafts.followed[:, None], axis=1)[:, 0]  # after the node that each follows
        is_proposed = jnp.arange(num_drafts, dtype=jnp.int32)[None] < drafts.num[:, None]
        chosen = _longest_paths(drafts, jnp.where(is_proposed, own, 0.0)).reshape(-1)
        return jnp.where(chosen < 0, drawn, chosen)


def make_rule(config: SpeculativeConfig) -> AcceptanceRule | None:
    """The rule of these options; None: drafts must be the tokens that the target draws."""
    if config.acceptance == "rejection":
        return RejectionSampling()
    if config.acceptance == "typical":
        return TypicalAcceptance(config.typical_threshold, config.typical_alpha)
    return None


Found = tuple[jax.Array, jax.Array, jax.Array]
"""Of each node so far: the length of its longest path, the chance of its first draft, and that draft."""


def _longest_paths(drafts: Drafts, chances: Float[Array, "S N"]) -> Int32[Array, "S W"]:
    """The draft after each node on the longest path of drafts whose chance is not 0; -1: there is none."""
    num_rows, num_drafts = chances.shape
    row = jnp.arange(num_rows, dtype=jnp.int32)

    def step(i: jax.Array, found: Found) -> Found:
        lengths, best, tokens = found
        draft = num_drafts - 1 - i  # those behind it come first
        parent, chance = drafts.followed[:, draft], chances[:, draft]
        length = 1 + lengths[:, 1 + draft]
        known, known_chance = lengths[row, parent], best[row, parent]
        is_better = (chance > 0) & ((length > known) | ((length == known) & (chance > known_chance)))

        def written(table: jax.Array, new: jax.Array) -> jax.Array:
            return table.at[row, parent].set(jnp.where(is_better, new, table[row, parent]))

        return written(lengths, length), written(best, chance), written(tokens, drafts.tokens[:, draft])

    empty = jnp.zeros((num_rows, 1 + num_drafts), jnp.int32)
    start = empty, empty.astype(jnp.float32), jnp.full_like(empty, -1)
    return lax.fori_loop(0, num_drafts, step, start)[2]
