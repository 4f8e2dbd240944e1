"""`MergedModel`: what the model with an adapter in its weights says about a text: one pass over all of it.

A text is the merged model's greedy one if each token is its likeliest after those before it. So a text is scored, not
computed again, and weights are merged in memory: 64 checkpoints of SmolLM2 would be 35 GB.
"""

from functools import cached_property, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from checkpoints.adapters.low_rank import AdapterWeights
from checkpoints.adapters.read_adapter import read_adapter
from jaxserve import LoRARequest, pure
from jaxserve.engine.build.adapter_reading import matrix_shapes
from jaxserve.models.params import Params
from pallas_kernels.qtensor import QTensor
from scripts.lora.lora_tree import PARTS, Lora, merged

PADDING = 64  # texts are padded to a multiple of this
MAX_RANK = 256


class TextScores(NamedTuple):
    """Of each token of a text after its prompt: its log-probability, and that of the likeliest token there."""

    own: np.ndarray
    likeliest: np.ndarray


class MergedModel:
    """One adapter at a time. quantization: "dense", or a scheme, whose codes are decoded before the merge."""

    def __init__(self, model: str, quantization: str = "dense"):
        dense = pure.load(model, dtype="float32", quantization="dense")
        self._settings, self._mesh = dense.settings, dense.mesh
        self._params = dense.params
        if quantization != "dense":
            self._params = _decoded(pure.load(model, dtype="float32", quantization=quantization).params, dense.params)

    def scores(self, adapter: LoRARequest | None, prompts: list[list[int]], texts: list[list[int]]) -> list[TextScores]:
        """Of texts after their prompts, by the weights with this adapter."""
        with jax.set_mesh(self._mesh):
            params = self._params if adapter is None else self._merge(self._params, self._matrices(adapter))
            return [self._score(params, prompt, text) for prompt, text in zip(prompts, texts, strict=True)]

    def _matrices(self, adapter: LoRARequest) -> Lora:
        config = self._settings.config
        return stacked(
            read_adapter(adapter.lora_path, matrix_shapes(config), config.num_layers, MAX_RANK), config.num_layers
        )

    @cached_property
    def _merge(self):
        return jax.jit(partial(merged, self._settings.config, scale=1.0))

    def _score(self, params: Params, prompt: list[int], text: list[int]) -> TextScores:
        tokens = np.array([*prompt, *text], np.int32)
        padded = np.pad(tokens, (0, -len(tokens) % PADDING))
        own, likeliest = self._compute(params, jnp.asarray(padded))
        part = slice(len(prompt) - 1, len(tokens) - 1)
        return TextScores(np.asarray(own)[part], np.asarray(likeliest)[part])

    @cached_property
    def _compute(self):
        settings = self._settings

        @jax.jit
        def compute(params: Params, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
            hidden, _ = pure.forward(settings, params, tokens[None])
            logits = pure.logits(settings, params, hidden[0])[:, : settings.config.vocab_size]
            logprobs = jax.nn.log_softmax(logits)
            return logprobs[jnp.arange(len(tokens)), jnp.roll(tokens, -1)], logprobs.max(axis=-1)

        return compute


def stacked(weights: AdapterWeights, num_layers: int) -> Lora:
    """The matrices by name, with zeros where a layer has none."""
    lora: Lora = {}
    for part in (part for parts in PARTS.values() for part in parts):
        pairs = {layer: pair for (layer, name), pair in weights.matrices.items() if name == part}
        if pairs:
            first = next(iter(pairs.values()))
            a = np.zeros((num_layers, weights.rank, first.a.shape[1]), np.float32)
            b = np.zeros((num_layers, first.b.shape[0], weights.rank), np.float32)
            for layer, pair in pairs.items():
                a[layer, : pair.rank], b[layer, :, : pair.rank] = pair.a, pair.b
            lora[part] = {"a": jnp.asarray(a), "b": jnp.asarray(b)}
    return lora


def _decoded(packed: Params, dense: Params) -> Params:
    """Weights coded by rows as arrays of numbers, of the shapes of the dense ones."""

    def decode(leaf, like):
        if not isinstance(leaf, QTensor):
            return leaf
        codes = jnp.stack(leaf.codes) if isinstance(leaf.codes, tuple) else leaf.codes
        return (codes.astype(jnp.float32) * leaf.scales[..., None]).reshape(like.shape)

    return jax.tree.map(decode, packed, dense, is_leaf=lambda x: isinstance(x, QTensor))
