"""A model as a GGUF file of Q4_K_M has it: half of the layers have more bits for values and for down projections."""

import jax
import jax.numpy as jnp

from jaxserve.engine.build.packing.block_products import form_on
from jaxserve.engine.build.packing.stored_blocks import StoredBlocks
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import Packing
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from tests.support.compiled.more_bits import have_more_bits

Q4_K_M = "Q4_K_M"


def with_mixed_blocks(config: ModelConfig, device: jax.Device) -> tuple[ModelConfig, Packing]:
    """The model of a Llama that a device runs, and its packing."""
    form = form_on(device, jnp.bfloat16)
    four, six = (form(GGML_FORMS[name], config.d_model) for name in ("Q4_K", "Q6_K"))
    kinds = {"qkv": four, "o": four, "gate_up": four, "down": four}
    more = kinds | {"qkv": (four, four, six), "down": six}
    layers = [more if has_more else kinds for has_more in have_more_bits(config.num_layers)]
    return StoredBlocks(layers, {"embed": four, "lm_head": six}, set()).apart(config)
