"""Wiring: `hidden_states`: the states of any layer for given texts, with the weights of a running engine."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.core.errors import RequestError
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.inputs.per_prompt import name_of, named
from jaxserve.engine.inputs.prompt import Prompt, token_ids
from jaxserve.functional.forward_steps import forward
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params

BATCH_TOKENS = 4096  # with padding; bounds memory. A longer text is a batch of its own
MIN_TOKENS = 16  # shorter texts share one compiled shape


def hidden_states(
    settings: Settings,
    params: Params,
    inputs: InputProcessor,
    prompts: SequenceOf[Prompt],
    layers: SequenceOf[int] | int = (-1,),
) -> list[np.ndarray]:
    """Hidden states of each prompt, float32 [len(layers), T, D], in the order of `layers`.

    layers: numbers, or one, of the L + 1 states of an L-layer model: 0 the embeddings, i the input of layer i, L the
    output after the final norm; negative numbers count from the end. Texts are padded to powers of two and run at most
    `BATCH_TOKENS` at a time, outside the engine's steps and without its KV memory. Raises RequestError.
    """
    states = _indices(layers, settings.config.num_layers)
    texts: list[np.ndarray] = []
    for i, ids in enumerate(token_ids(prompts, inputs.tokenizer)):
        with named(name_of(i, len(prompts), "prompt"), "prompts"):
            texts.append(inputs.checked_ids(ids, room=0))
    found: dict[int, np.ndarray] = {}
    for chosen, tokens in _batches(texts):
        batch: np.ndarray = np.asarray(cast(Any, _states(settings, states, params, tokens)))
        for row, i in enumerate(chosen):
            found[i] = batch[:, row, : len(texts[i])].astype(np.float32)
    return [found[i] for i in range(len(texts))]


@partial(jax.jit, static_argnums=(0, 1))
def _states(settings: Settings, states: tuple[int, ...], params: Params, tokens: jax.Array) -> jax.Array:
    """[A, B, T, D]: the states asked for, of padded texts [B, T]."""
    inputs = tuple(sorted(set(states) - {settings.config.num_layers}))
    hidden, taps = forward(settings, params, tokens, layers=inputs)
    return jnp.stack([taps[inputs.index(i)] if i in inputs else hidden for i in states])


def _batches(texts: SequenceOf[np.ndarray]) -> Iterator[tuple[list[int], np.ndarray]]:
    """Texts of similar length together: their indices, and their tokens padded to powers of two [B, T]."""
    waiting = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    while waiting:
        width = max(MIN_TOKENS, _power_of_two(len(texts[waiting[-1]])))
        count = min(len(waiting), max(1, BATCH_TOKENS // width))
        waiting, chosen = waiting[:-count], waiting[-count:]
        tokens = np.zeros((_power_of_two(count), width), np.int32)
        for row, i in enumerate(chosen):
            tokens[row, : len(texts[i])] = texts[i]
        yield chosen, tokens


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _indices(layers: Any, num_layers: int) -> tuple[int, ...]:
    listed: list[Any]
    if isinstance(layers, int | np.integer):
        listed = [layers]
    elif isinstance(layers, SequenceOf | np.ndarray) and not isinstance(layers, str):
        listed = list(cast(SequenceOf[Any], layers))
    else:
        raise RequestError(f"layers={layers!r} is neither a number nor a list of numbers", "layers")
    for layer in listed:
        if not isinstance(layer, int | np.integer) or not -num_layers - 1 <= layer <= num_layers:
            message = f"layers holds {layer!r}; this model has states 0 to {num_layers} (or -1 to {-num_layers - 1})"
            raise RequestError(message, "layers")
    if not listed:
        raise RequestError("layers is empty: name at least one (-1 is the output after the final norm)", "layers")
    return tuple(int(layer) % (num_layers + 1) for layer in listed)
