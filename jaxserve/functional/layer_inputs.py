"""Device: `layer_inputs`: what the matrices of each layer are multiplied by, in whole texts: what calibration needs."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32

from jaxserve.functional.forward_steps import no_metas, no_pool, text_context, text_positions
from jaxserve.models.attention_metadata import of_group
from jaxserve.models.config.model_config import Stack
from jaxserve.models.layer import run_layer
from jaxserve.models.linear import OfLayer, Segments, observing
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.models.rotary import rope_tables
from jaxserve.models.transformer import embed

BATCH = 8  # texts that a layer reads at once
Kept = dict[str, jax.Array]
"""What is kept of the inputs of a layer's matrices, by their names."""
Ran = tuple[jax.Array, Kept]


class Keep:
    """What is kept of inputs [tokens, in]. Its functions are pure: they are compiled."""

    def of(self, inputs: jax.Array) -> jax.Array:
        """Of some tokens."""
        raise NotImplementedError

    def joined(self, one: jax.Array, other: jax.Array) -> jax.Array:
        """Of both, in the shape and the memory of `one`."""
        raise NotImplementedError


class Largest(Keep):
    """The largest magnitude of each input, float32[in]."""

    def of(self, inputs: jax.Array) -> jax.Array:
        """See `Keep`."""
        return jnp.max(jnp.abs(inputs.astype(jnp.float32)), axis=0)

    def joined(self, one: jax.Array, other: jax.Array) -> jax.Array:
        """See `Keep`."""
        return jnp.maximum(one, other)


class Products(Keep):
    """The sum of x xᵀ over tokens x, float32[in, in]."""

    def of(self, inputs: jax.Array) -> jax.Array:
        """See `Keep`."""
        return jnp.matmul(inputs.T, inputs, preferred_element_type=jnp.float32)

    def joined(self, one: jax.Array, other: jax.Array) -> jax.Array:
        """See `Keep`."""
        return one + other


LARGEST, PRODUCTS = Largest(), Products()


def layer_inputs(settings: Settings, params: Params, texts: Int32[np.ndarray, "N T"], keep: Keep) -> Iterator[Kept]:
    """Of each layer in turn. Between layers the hidden states of all texts are in memory, and the layers' weights."""
    config = settings.config
    batches = [jnp.asarray(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)]
    states, layers = [embed(config, params, batch.reshape(-1)) for batch in batches], params["layers"]
    del params  # embedding and head are not needed again: 2 GB of Llama 3 8B
    for row in config.layer_table:
        stack = config.stacks[row.stack]
        weights, index, found = layers[stack.name], jnp.int32(row.index_in_stack), Kept()
        for i, batch in enumerate(batches):
            inputs = weights, index, text_positions(batch)
            states[i], found = cast(Ran, _run_layer(settings, stack, keep, len(batch), states[i], found, *inputs))
        yield found


# Batches are dispatched ahead of the device: sums that were added outside would be in memory once for each.
@partial(jax.jit, static_argnums=(0, 1, 2, 3), donate_argnums=(4, 5))
def _run_layer(
    settings: Settings,
    stack: Stack,
    keep: Keep,
    num_texts: int,
    x: Float[Array, "BT D"],
    found: Kept,
    weights: Params,
    index: Int[Array, ""],
    positions: Int[Array, "BT"],
) -> Ran:
    """found: of the batches before, empty for the first."""
    attention, kept = stack.kind.attention, Kept()

    def observe(weight: OfLayer | Segments, inputs: jax.Array) -> None:
        assert isinstance(weight, OfLayer)
        (name,) = (name for name, leaf in weights.items() if leaf is weight.stack)
        seen = keep.of(inputs)
        kept[name] = keep.joined(found[name], seen) if found else seen

    def at_once(function: Callable[..., Any], *columns: Any) -> Any:
        return function(*columns)

    ctx, eps = text_context(settings, num_texts), settings.config.norm_eps
    meta = of_group(no_metas(settings)[0], 0)
    rope = rope_tables(attention.rope, attention.head_dim, positions)
    inputs = weights, index, x, no_pool(settings), jnp.int32(0), meta, rope
    with observing(observe):
        x, _ = run_layer(ctx, stack.kind, eps, at_once, *inputs)
    return x, kept
