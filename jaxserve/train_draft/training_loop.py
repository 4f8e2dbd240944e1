"""Device: trains draft weights on a model's texts, while the model stays as it is, and measures them on other texts."""

from collections.abc import Callable, Mapping
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
from jaxserve.train_draft.training_state import TrainingState

HELD_OUT = 0.1  # share of the texts that are not learned
WARM_UP_STEPS = 40
SAVED_EVERY = 50  # steps

# (trained weights, the model's, inputs) -> (loss, the loss of each depth)
Loss = Callable[..., tuple[jax.Array, jax.Array]]
# the same -> (how often the token was the guess of each rank, [depth, MAX_RANKS]; of how many, [depth])
CountRanks = Callable[..., tuple[jax.Array, jax.Array]]
Inputs = tuple[np.ndarray, ...]
"""Tokens [N, L], which of them are learned [N, L], and what else belongs to each text."""
Learned = tuple[Params, Any, jax.Array]
"""(weights, the optimizer's state, the loss of each depth) after a step."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """depth: of how many tokens, one after the other, guesses are learned. texts_per_step: of one step. epochs: how
    often each text is learned. max_steps: ends the training earlier."""

    depth: int
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
    """weights: float32. shares: of held-out tokens, by depth and rank, how often this guess was the token. losses:
    float32[steps, depth]. bigram_share: how often the token was the likeliest after the one before it, which is what
    guesses compete with."""

    weights: Params
    shares: tuple[tuple[float, ...], ...]
    losses: np.ndarray
    bigram_share: float


def train(
    settings: Settings,
    params: Params,
    start: Params,
    loss: Loss,
    count: CountRanks,
    inputs: Inputs,
    plan: TrainingPlan,
    folder: Path,
    kind: Mapping[str, Any],
    progress: Callable[[int, int], None],
) -> Trained:
    """Train the weights `start`, and measure on the last tenth of the texts. kind: what is trained: a run goes on with
    the same one only. progress: called with the steps done, and all."""
    tokens, is_own = inputs[:2]
    num_texts, text_len = tokens.shape
    learned = num_texts - max(1, int(HELD_OUT * num_texts))
    if not learned or text_len < plan.depth + 2:
        raise ConfigError(
            f"{num_texts} texts of {text_len} tokens are too few for guesses of {plan.depth} "
            "tokens: ask for more (--num-tokens, --text-len)"
        )
    num_steps = plan.num_steps(learned)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, plan.learning_rate, min(WARM_UP_STEPS, num_steps // 2), max(num_steps, 2)
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    num_weights = sum(leaf.size for leaf in jax.tree.leaves(start))
    sizes = {"num_texts": num_texts, "text_len": text_len, "num_weights": num_weights}
    key = {**kind, **asdict(plan), **sizes}
    losses = np.full((num_steps, plan.depth), np.nan, np.float32)
    start = jax.tree.map(jnp.copy, start)  # some may be the model's own, and each step donates them
    state = TrainingState(start, optimizer.init(start), losses, np.zeros((), np.int32)).restored(folder, key)
    losses = np.array(state.losses)

    @partial(jax.jit, donate_argnums=(0, 1))
    def learn(weights: Params, opt_state: Any, params: Params, *batch: jax.Array) -> Learned:
        def of_weights(weights: Params) -> tuple[jax.Array, jax.Array]:
            return loss(weights, params, *batch)

        (_, by_depth), gradients = jax.value_and_grad(of_weights, has_aux=True)(weights)
        updates, opt_state = optimizer.update(gradients, opt_state, weights)
        return cast(Params, optax.apply_updates(weights, updates)), opt_state, by_depth

    with jax.set_mesh(settings.mesh):
        for step in range(int(state.num_done), num_steps):
            rows = _rows_of_step(plan, learned, step)
            batch = [jnp.asarray(array[rows]) for array in inputs]
            found = cast(Learned, learn(state.weights, state.optimizer, params, *batch))
            losses[step] = np.asarray(found[2])
            state = TrainingState(found[0], found[1], losses, np.array(step + 1, np.int32))
            progress(step + 1, num_steps)
            if (step + 1) % SAVED_EVERY == 0:
                state.save(folder, key)
        shares = _shares(plan.depth, count, params, state.weights, tuple(array[learned:] for array in inputs))
    state.save(folder, key)
    bigram = _bigram_share(tokens[:learned], tokens[learned:], is_own[learned:])
    return Trained(jax.tree.map(np.asarray, state.weights), shares, state.losses, bigram)


def _rows_of_step(plan: TrainingPlan, num_texts: int, step: int) -> np.ndarray:
    """The texts of a step: in each epoch all of them in another order."""
    size = min(plan.texts_per_step, num_texts)
    epoch, place = divmod(step * size, max(num_texts // size * size, 1))
    order = np.random.default_rng((plan.seed, epoch)).permutation(num_texts)
    return order[place : place + size]


def _shares(
    depth: int, count: CountRanks, params: Params, weights: Params, held_out: Inputs
) -> tuple[tuple[float, ...], ...]:
    compiled = jax.jit(count)
    counts, totals = np.zeros((depth, MAX_RANKS)), np.zeros(depth)
    for text in zip(*held_out, strict=True):
        batch = [jnp.asarray(array[None]) for array in text]
        found = cast(tuple[jax.Array, jax.Array], compiled(weights, params, *batch))
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
