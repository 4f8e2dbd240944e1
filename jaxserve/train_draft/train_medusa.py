"""Wiring: trains Medusa heads on texts of their model, which stays as it is (Medusa-1, arXiv 2401.10774)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxserve.functional.forward_steps import forward
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.train_draft.learned_positions import learned_positions
from jaxserve.train_draft.learned_vocabulary import frequent_tokens
from jaxserve.train_draft.medusa_loss import MedusaGuesses
from jaxserve.train_draft.own_texts import OwnTexts
from jaxserve.train_draft.training_loop import Trained, TrainingPlan, train

Progress = Callable[[int, int], None]
"""Called with what is done, and all."""


def train_medusa(
    settings: Settings,
    params: Params,
    texts: OwnTexts,
    hidden: Float[np.ndarray, "N L D"],
    vocab_size: int,
    plan: TrainingPlan,
    folder: Path,
    progress: Progress,
) -> Trained:
    """Heads, block [K, D, D] and bias [K, D], K = plan.depth; they begin as the model's own head.

    hidden: of the texts (`hidden_states`). vocab_size: tokens that are learned, the most frequent ones of the texts.
    """
    size = settings.config.d_model
    start = {
        "block": jnp.zeros((plan.depth, size, size), jnp.float32),
        "bias": jnp.zeros((plan.depth, size), jnp.float32),
    }
    guesses = MedusaGuesses(settings, frequent_tokens(texts, settings.config.vocab_size, vocab_size))
    kind = {"method": "medusa", "draft_vocab_size": vocab_size}
    inputs = learned_positions(texts, hidden, plan.depth + 1)
    return train(settings, params, start, guesses.loss, guesses.rank_counts, inputs, plan, folder, kind, progress)


def hidden_states(
    settings: Settings, params: Params, texts: OwnTexts, progress: Progress
) -> Float[np.ndarray, "N L D"]:
    """In the model's dtype. Heads see nothing else of it, so it reads the texts once, not in each epoch."""
    read = jax.jit(partial(_read, settings))
    found = list[np.ndarray]()
    for tokens in texts.tokens:
        found.append(np.asarray(cast(jax.Array, read(params, jnp.asarray(tokens[None])))[0]))
        progress(len(found), len(texts.tokens))
    return np.stack(found)


def _read(settings: Settings, params: Params, tokens: jax.Array) -> jax.Array:
    return forward(settings, params, tokens)[0]
