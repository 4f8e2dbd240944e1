"""Device: drafts of Medusa heads (Cai et al., arXiv 2401.10774), which all guess from the target's last hidden state.

    hidden state, from which the last token was drawn ─┬─ block 0 ─ head ─ the token after it    0 ─┬─ 0 ─ 0
                                                       ├─ block 1 ─ head ─ the next one             └─ 1
                                                       └─ block 2 ─ head ─ and the next             1 ─── 0

A block is x + SiLU(W·x + b); the head is the model's own, read once for all blocks. The guesses of the heads do not
know each other: combined in a tree, of which the best nodes are proposed (`MedusaHeads.best_tree`).
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import MAX_SPECULATIVE_TOKENS, PARAM
from jaxserve.models.config.medusa_heads import MedusaHeads, Path
from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.param_spec import ParamSpec
from jaxserve.models.params import DRAFT, Params
from jaxserve.models.transformer import logits
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.drafts.proposer import DraftRows, Proposer
from jaxserve.sampling.argmax_top_k import top_k
from jaxserve.sampling.logit_processors import mask_padding
from jaxserve.sampling.row_sharding import shard_rows


@dataclass(frozen=True)
class Medusa(Proposer):
    """model: the target."""

    model: Settings
    heads: MedusaHeads

    @classmethod
    def of(cls, target: Settings, heads: MedusaHeads) -> "Medusa":
        """Raises ConfigError where the heads are of another model."""
        if heads.d_model != target.config.d_model:
            raise ConfigError(
                f"{PARAM}: the Medusa heads take hidden states of {heads.d_model} numbers, the model's have "
                f"{target.config.d_model}: they are of another model",
                PARAM,
            )
        return cls(target, heads)

    @property
    def makes_trees(self) -> bool:
        """See `Proposer`."""
        return any(any(path) for path in self.tree)

    @property
    def weights(self) -> Params:
        """See `Proposer`."""
        k, d, dtype = self.heads.num_heads, self.heads.d_model, self.model.dtype
        return {
            "block": ParamSpec((k, d, d), (None, None, None), dtype, d**-0.5),
            "bias": ParamSpec((k, d), (None, None), dtype, d**-0.5),
        }

    @cached_property
    def tree(self) -> tuple[Path, ...]:
        return self.heads.best_tree(MAX_SPECULATIVE_TOKENS)

    def depth(self, num_drafts: int) -> int:
        """See `Proposer`."""
        return max((len(path) for path in self.tree[:num_drafts]), default=0)

    @jax.named_scope("draft")
    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """See `Proposer`."""
        paths = (self.tree * num_drafts)[:num_drafts]  # a small tree is repeated: twins are never accepted
        num_ranks = 1 + max(rank for path in paths for rank in path)
        num_heads = max(len(path) for path in paths)  # of later heads there is no guess
        hidden = state.last_hidden[rows.slots]
        raw = self.head_logits(params, hidden, num_heads)

        def likeliest(raw: jax.Array) -> jax.Array:
            return top_k(mask_padding(raw, self.model.config.vocab_size), num_ranks)[1]

        guesses = shard_rows(self.model.mesh, likeliest, raw).reshape(len(hidden), num_heads, num_ranks)
        heads, ranks = jnp.int32([len(path) - 1 for path in paths]), jnp.int32([path[-1] for path in paths])
        node = {path: 1 + i for i, path in reversed(list(enumerate(paths)))}
        parents = jnp.int32([node.get(path[:-1], 0) for path in paths])
        return state, Drafts(
            guesses[:, heads, ranks],
            jnp.minimum(rows.room, min(num_drafts, len(self.tree))),
            jnp.broadcast_to(parents, (len(hidden), num_drafts)) if self.makes_trees else None,
        )

    def head_logits(self, params: Params, hidden: Float[Array, "S D"], num_heads: int) -> Float[Array, "SK V"]:
        """Logits of the first K = num_heads heads, row by row.

        The small blocks of the others run, too: a part of the stacked weights would be a copy of them.
        """
        model = self.model
        x = medusa_states(params[DRAFT], hidden)[:, :num_heads].reshape(-1, hidden.shape[1])
        return logits(Context(model.mesh, model.attention_backend), model.config, params, x)


def medusa_states(heads: Params, hidden: Float[Array, "S D"]) -> Float[Array, "S K D"]:
    """What each of the K heads gives the model's head. heads: block [K, D, D], stored [out, in], and bias [K, D]."""
    precision = jax.lax.Precision.HIGHEST if hidden.dtype == jnp.float32 else None
    change = jnp.einsum("sd,ked->ske", hidden, heads["block"], precision=precision, preferred_element_type=jnp.float32)
    change = jax.nn.silu(change + heads["bias"].astype(jnp.float32)[None])
    return hidden[:, None] + change.astype(hidden.dtype)
