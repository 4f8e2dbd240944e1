"""Wiring: `compare_quality`: how well models predict a text, and how far each is from the first one.

A text is cut into pieces of equal length, each of which is predicted from its own beginning on. Models of another
format or of packed weights are so compared with the dense one at the same positions.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import jax
import numpy as np
from jaxtyping import Array, Float, Int32

from jaxserve.bench.quality.decode_speed import NUM_TEXTS, decode_rate
from jaxserve.bench.quality.distances import distances
from jaxserve.core.errors import RequestError
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.engine.pure_model import PureModel
from jaxserve.functional.forward_steps import forward, logits
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params


@dataclass(frozen=True, slots=True)
class Quality:
    """packed, decoded: the forms of weights that are kept, and those that are decoded. num_bytes: of the weights.
    perplexity: exp of the mean negative log-likelihood of the tokens. divergence: mean of KL(first model ‖ this one)
    over the positions, in nats. agreement: share of positions with the first model's likeliest token. tokens_per_s: of
    whole pieces, computed at once. decoded_per_s: tokens that follow the first halves of `num_decoded` pieces at once.
    """

    name: str
    packed: str
    decoded: str
    num_bytes: int
    perplexity: float
    divergence: float
    agreement: float
    tokens_per_s: float
    decoded_per_s: float
    num_decoded: int


Load = Callable[[], PureModel]


def compare_quality(
    first: PureModel,
    others: Sequence[tuple[str, Load | None]],
    pieces: Int32[np.ndarray, "N T"],
    on_progress: Callable[[str], None],
) -> Iterator[Quality]:
    """A result for each of `others`, which are loaded one after the other; None: the first model itself.

    Raises RequestError for one with another vocabulary.
    """
    for name, load in others:
        on_progress(f"{name}: loading")
        yield _compare(name, first, first if load is None else load(), pieces, on_progress)


def _compare(
    name: str,
    first: PureModel,
    model: PureModel,
    pieces: Int32[np.ndarray, "N T"],
    on_progress: Callable[[str], None],
) -> Quality:
    if model.config.vocab_size != first.config.vocab_size:
        sizes = f"{model.config.vocab_size} tokens, not {first.config.vocab_size}"
        raise RequestError(f"{name} has a vocabulary of {sizes}: its probabilities cannot be compared", "models")
    _logits(model, pieces[0])  # compiles
    sums, elapsed_s = np.zeros(3), 0.0
    for number, piece in enumerate(pieces, 1):
        started_s = time.monotonic()
        found = _logits(model, piece)
        elapsed_s += time.monotonic() - started_s
        of_first = found if model is first else _logits(first, piece)
        sums += distances(of_first, found, piece)
        on_progress(f"{name}: piece {number} of {len(pieces)}")
    num_predicted = pieces[:, 1:].size
    loss, divergence, agreement = (sums / num_predicted).tolist()
    perplexity, rate = math.exp(min(loss, 700.0)), pieces.size / elapsed_s
    packing, num_bytes = model.settings.packing, device_bytes(model.params)
    on_progress(f"{name}: decoding")
    forms = packing.name, packing.decoded
    distance = perplexity, divergence, agreement
    num_decoded = min(NUM_TEXTS, len(pieces))
    return Quality(name, *forms, num_bytes, *distance, rate, decode_rate(model, pieces), num_decoded)


def _logits(model: PureModel, tokens: Int32[np.ndarray, "T"]) -> jax.Array:
    found = cast(jax.Array, _all_logits(model.settings, model.params, tokens))
    return found.block_until_ready()


@partial(jax.jit, static_argnums=0)
def _all_logits(settings: Settings, params: Params, tokens: Int32[Array, "T"]) -> Float[Array, "T V"]:
    hidden, _ = forward(settings, params, tokens[None])
    return logits(settings, params, hidden[0])
