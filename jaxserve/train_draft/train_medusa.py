"""Wiring: trains Medusa heads on texts of their model, which stays as it is (Medusa-1, arXiv 2401.10774)."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax  # pyright: ignore[reportMissingTypeStubs]

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.medusa_heads import MAX_RANKS
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.train_draft.medusa_loss import medusa_loss, rank_counts
from jaxserve.train_draft.own_texts import OwnTexts
from jaxserve.train_draft.training_state import TrainingState

HELD_OUT = 0.1  # share of the texts that are not learned
WARM_UP_STEPS = 40
SAVED_EVERY = 50  # steps

Learned = tuple[Params, Any, jax.Array]
"""(heads, the optimizer's state, each head's loss) after a step."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """texts_per_step: of one step. epochs: how often each text is learned. max_steps: ends the training earlier."""

    num_heads: int
    learning_rate: float
    texts_per_step: int
    epochs: int
    max_steps: int | None
    seed: int

    def num_steps(self, num_texts: int) -> int:
        steps = max(self.epochs * (num_texts // self.texts_per_step), 1)
        return steps if self.max_steps is None else min(steps, self.max_steps)


@dataclass(frozen=True, slots=True)
class Trained:
    """heads: block [K, D, D] and bias [K, D], float32. shares: of held-out tokens, by head and rank (`MedusaHeads`).
    losses: float32[steps, K]. bigram_share: how often the token was the likeliest after the one before it, which is
    what the first head competes with."""

    heads: Params
    shares: tuple[tuple[float, ...], ...]
    losses: np.ndarray
    bigram_share: float


def train_medusa(
    settings: Settings,
    params: Params,
    texts: OwnTexts,
    plan: TrainingPlan,
    folder: Path,
    progress: Callable[[int, int], None],
) -> Trained:
    """Train, and measure on held-out texts. progress: called with the steps done, and all of them."""
    num_held_out = max(1, int(HELD_OUT * len(texts.tokens)))
    learned = len(texts.tokens) - num_held_out
    if not learned or texts.tokens.shape[1] < plan.num_heads + 2:
        raise ConfigError(
            f"{len(texts.tokens)} texts of {texts.tokens.shape[1]} tokens are too few for {plan.num_heads} heads: ask "
            "for more tokens (--num-tokens, --text-len)"
        )
    num_steps = plan.num_steps(learned)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, plan.learning_rate, min(WARM_UP_STEPS, num_steps // 2), max(num_steps, 2)
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    size = settings.config.d_model
    heads = {
        "block": jnp.zeros((plan.num_heads, size, size), jnp.float32),
        "bias": jnp.zeros((plan.num_heads, size), jnp.float32),
    }
    key = asdict(plan) | {"num_texts": len(texts.tokens), "text_len": texts.tokens.shape[1]}
    losses = np.full((num_steps, plan.num_heads), np.nan, np.float32)
    state = TrainingState(heads, optimizer.init(heads), losses, np.zeros((), np.int32)).restored(folder, key)
    losses = np.array(state.losses)

    @partial(jax.jit, donate_argnums=(0, 1))
    def learn(heads: Params, opt_state: Any, params: Params, tokens: jax.Array, is_own: jax.Array) -> Learned:
        def loss(heads: Params) -> tuple[jax.Array, jax.Array]:
            return medusa_loss(settings, params, heads, tokens, is_own)

        (_, by_head), gradients = jax.value_and_grad(loss, has_aux=True)(heads)
        updates, opt_state = optimizer.update(gradients, opt_state, heads)
        return cast(Params, optax.apply_updates(heads, updates)), opt_state, by_head

    is_own = texts.is_generated
    with jax.set_mesh(settings.mesh):
        for step in range(int(state.num_done), num_steps):
            rows = _rows_of_step(plan, learned, step)
            batch = jnp.asarray(texts.tokens[rows]), jnp.asarray(is_own[rows])
            found = cast(Learned, learn(state.heads, state.optimizer, params, *batch))
            losses[step] = np.asarray(found[2])
            state = TrainingState(found[0], found[1], losses, np.array(step + 1, np.int32))
            progress(step + 1, num_steps)
            if (step + 1) % SAVED_EVERY == 0:
                state.save(folder, key)
        shares = _shares(settings, params, state.heads, texts.tokens[learned:], is_own[learned:])
    state.save(folder, key)
    bigram = _bigram_share(texts.tokens[:learned], texts.tokens[learned:], is_own[learned:])
    return Trained(jax.tree.map(np.asarray, state.heads), shares, state.losses, bigram)


def _rows_of_step(plan: TrainingPlan, num_texts: int, step: int) -> np.ndarray:
    """The texts of a step: in each epoch all of them in another order."""
    size = min(plan.texts_per_step, num_texts)
    epoch, place = divmod(step * size, max(num_texts // size * size, 1))
    order = np.random.default_rng((plan.seed, epoch)).permutation(num_texts)
    return order[place : place + size]


def _shares(
    settings: Settings, params: Params, heads: Params, tokens: np.ndarray, is_own: np.ndarray
) -> tuple[tuple[float, ...], ...]:
    count = jax.jit(partial(rank_counts, settings))
    counts, totals = np.zeros((len(heads["bias"]), MAX_RANKS)), np.zeros(len(heads["bias"]))
    for row, own in zip(tokens, is_own, strict=True):
        found = cast(tuple[jax.Array, jax.Array], count(params, heads, jnp.asarray(row[None]), jnp.asarray(own[None])))
        counts, totals = counts + np.asarray(found[0]), totals + np.asarray(found[1])
    return tuple(map(tuple, (counts / np.maximum(totals, 1)[:, None]).tolist()))


def _bigram_share(learned: np.ndarray, held_out: np.ndarray, is_own: np.ndarray) -> float:
    """How often the token is the one that followed the token before it most often in the learned texts."""
    pairs, numbers = np.unique(np.stack([learned[:, :-1].ravel(), learned[:, 1:].ravel()]), axis=1, return_counts=True)
    order = np.argsort(numbers, kind="stable")  # the most frequent of a first token is written last
    following = dict(zip(pairs[0, order].tolist(), pairs[1, order].tolist(), strict=True))
    guesses = np.array([following.get(token, -1) for token in held_out[:, :-1].ravel().tolist()])
    counted = is_own[:, 1:].ravel()
    return float((guesses == held_out[:, 1:].ravel())[counted].mean()) if counted.any() else 0.0
