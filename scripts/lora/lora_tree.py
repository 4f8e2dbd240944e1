"""The matrices of an adapter while it is trained: drawn, added to a model's weights, taken out as PEFT has them.

q, k, v, o, gate, up, down    a [layers, rank, in]    b [layers, out, rank]
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from checkpoints.adapters.low_rank import AdapterWeights, LowRank
from jaxserve.engine.build.adapter_reading import matrix_shapes
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.params import Params

PARTS = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}
"""The matrices in each leaf of a layer."""
Lora = dict[str, dict[str, jax.Array]]


def draw(model: ModelConfig, targets: Sequence[str], rank: int, seed: int) -> Lora:
    """a uniform as PEFT's, b zero: the model is what it was (Hu et al., arXiv 2106.09685, section 4.1)."""
    shapes, rng = matrix_shapes(model), np.random.default_rng(seed)
    lora: Lora = {}
    for part in targets:
        num_out, num_in = shapes[part]
        bound = num_in**-0.5
        a = rng.uniform(-bound, bound, (model.num_layers, rank, num_in)).astype(np.float32)
        lora[part] = {"a": jnp.asarray(a), "b": jnp.zeros((model.num_layers, num_out, rank), jnp.float32)}
    return lora


def merged(model: ModelConfig, params: Params, lora: Lora, scale: float) -> Params:
    """The model's weights with scale · b · a added."""
    layers = dict[str, Params]()
    for number, stack in enumerate(model.stacks):
        own = np.flatnonzero(np.array(model.layer_stacks) == number)
        leaves = dict(params["layers"][stack.name])
        for leaf, parts in PARTS.items():
            if any(part in lora for part in parts):
                leaves[leaf] = leaves[leaf] + scale * _delta(model, leaf, lora, own).reshape(leaves[leaf].shape)
        layers[stack.name] = leaves
    return params | {"layers": layers}


def _delta(model: ModelConfig, leaf: str, lora: Lora, layers: np.ndarray) -> jax.Array:
    shapes = matrix_shapes(model)

    def product(part: str) -> jax.Array:
        if part not in lora:
            return jnp.zeros((len(layers), *shapes[part]))
        return jnp.einsum("lor,lri->loi", lora[part]["b"][layers], lora[part]["a"][layers])

    products = [product(part) for part in PARTS[leaf]]
    if leaf != "qkv":
        return jnp.stack(products, axis=1)
    # Rows of a KV head: its query heads, its key, its value.
    by_head = [x.reshape(len(layers), model.num_kv_heads, -1, x.shape[-1]) for x in products]
    return jnp.concatenate(by_head, axis=2)


def exported(lora: Lora, scale: float) -> AdapterWeights:
    """By layer and matrix, the scale multiplied into b."""
    arrays = {part: (np.asarray(pair["a"]), np.asarray(pair["b"]) * np.float32(scale)) for part, pair in lora.items()}
    num_layers = len(next(iter(arrays.values()))[0])
    return AdapterWeights(
        {(layer, part): LowRank(a[layer], b[layer]) for layer in range(num_layers) for part, (a, b) in arrays.items()}
    )
