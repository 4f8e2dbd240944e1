"""Wiring: `decode_rate`: how fast a model decodes a few texts at once, which is where fewer bytes of weights pay."""

import time
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32

from jaxserve.engine.pure_model import PureModel
from jaxserve.functional.forward_steps import decode, prefill
from jaxserve.functional.kv_cache import Cache, init_cache
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params

NUM_TEXTS = 8
"""At once, at most. Weights are read once for all of them."""
MAX_STEPS = 32
NUM_RUNS = 3
"""The first compiles; of the others the fastest counts."""


def decode_rate(model: PureModel, pieces: Int32[np.ndarray, "N T"]) -> float:
    """Tokens a second of the greedy texts that follow the first halves of the first pieces; without the prompts, and
    without what an engine adds to its steps, such as sampling."""
    width = pieces.shape[1] // 2
    texts = jnp.asarray(pieces[:NUM_TEXTS, :width])
    num_steps = min(MAX_STEPS, pieces.shape[1] - width)
    fastest_s = float("inf")
    for number in range(NUM_RUNS):
        cache = init_cache(model.settings, len(texts), width + num_steps)
        inputs = model.settings, model.params, texts, cache
        logits, cache = cast(tuple[jax.Array, Cache], _read(*inputs))
        logits.block_until_ready()
        started_s = time.monotonic()
        inputs = model.settings, num_steps, model.params, logits, cache
        tokens, _ = cast(tuple[jax.Array, Cache], _continued(*inputs))
        tokens.block_until_ready()
        if number:
            fastest_s = min(fastest_s, time.monotonic() - started_s)
    return len(texts) * num_steps / fastest_s


@partial(jax.jit, static_argnums=0, donate_argnums=3)
def _read(
    settings: Settings, params: Params, tokens: Int[Array, "B T"], cache: Cache
) -> tuple[Float[Array, "B V"], Cache]:
    return prefill(settings, params, tokens, jnp.full(len(tokens), tokens.shape[1]), cache)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _continued(
    settings: Settings, num_steps: int, params: Params, logits: Float[Array, "B V"], cache: Cache
) -> tuple[Int[Array, "N B"], Cache]:
    """The tokens, and the cache, which is updated in place."""

    def step(carry: tuple[Array, Cache], _: None) -> tuple[tuple[Array, Cache], Array]:
        logits, cache = carry
        tokens = logits.argmax(-1).astype(jnp.int32)
        return decode(settings, params, tokens, cache), tokens

    (_, cache), tokens = jax.lax.scan(step, (logits, cache), length=num_steps)
    return tokens, cache
