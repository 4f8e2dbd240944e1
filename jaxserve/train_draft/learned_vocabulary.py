"""Device: training on the tokens that a model's texts have most often: logits of all would take most of the time."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.models.linear import rows_of
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params, vocab_width
from jaxserve.train_draft.own_texts import OwnTexts


def frequent_tokens(texts: OwnTexts, vocab_size: int, count: int) -> np.ndarray:
    """int32[count]: the most frequent ones, ascending. vocab_size: of the model."""
    counts = np.bincount(texts.tokens[texts.is_generated], minlength=vocab_size)
    return np.sort(np.argsort(-counts, kind="stable")[:count]).astype(np.int32)


def with_vocabulary(settings: Settings, vocabulary: np.ndarray) -> Settings:
    """A model that has these tokens alone, with a head of its own (`head_rows`)."""
    return replace(settings, config=replace(settings.config, vocab_size=len(vocabulary), is_tied=False))


def head_rows(settings: Settings, params: Params, vocabulary: np.ndarray) -> jax.Array:
    """[Vp, D]: the rows of the model's head for these tokens, and further ones up to whole tiles."""
    num_rows = vocab_width(with_vocabulary(settings, vocabulary).config, settings.mesh)
    head = params["embed" if settings.config.is_tied else "lm_head"]
    return rows_of(head, jnp.asarray(np.pad(vocabulary, (0, num_rows - len(vocabulary)))))
