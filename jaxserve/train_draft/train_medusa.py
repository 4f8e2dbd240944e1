"""Wiring: trains Medusa heads on texts of their model, which stays as it is (Medusa-1, arXiv 2401.10774)."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.train_draft.medusa_loss import medusa_loss, rank_counts
from jaxserve.train_draft.own_texts import OwnTexts
from jaxserve.train_draft.training_loop import Trained, TrainingPlan, train


def train_medusa(
    settings: Settings,
    params: Params,
    texts: OwnTexts,
    plan: TrainingPlan,
    folder: Path,
    progress: Callable[[int, int], None],
) -> Trained:
    """Heads, block [K, D, D] and bias [K, D], K = plan.depth; they begin as the model's own head."""
    size = settings.config.d_model
    start = {
        "block": jnp.zeros((plan.depth, size, size), jnp.float32),
        "bias": jnp.zeros((plan.depth, size), jnp.float32),
    }

    def loss(heads: Params, params: Params, tokens: jax.Array, is_own: jax.Array) -> tuple[jax.Array, jax.Array]:
        return medusa_loss(settings, params, heads, tokens, is_own)

    def count(heads: Params, params: Params, tokens: jax.Array, is_own: jax.Array) -> tuple[jax.Array, jax.Array]:
        return rank_counts(settings, params, heads, tokens, is_own)

    return train(settings, params, start, loss, count, texts, plan, folder, progress)
