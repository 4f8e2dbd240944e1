"""Biases of zeros that a model has no place for, such as AutoGPTQ's, are left; others are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.load import load
from checkpoints.tensor_names import llama_names
from tests.checkpoints.quantized.test_quantized_weights import open_folder
from tests.checkpoints.quantized_builder import gptq
from tests.checkpoints.random_models import Sizes, hf_tensors, tree

SIZES = Sizes()
RULES = llama_names.rules("hf", SIZES.dims)
OF_DOWN, OF_NORM = "model.layers.1.mlp.down_proj.bias", "model.norm.bias"


def loaded(folder, biases):
    """A model with matrices of GPTQ, and what it decodes to."""
    tensors, plain, config = {}, {}, None
    for name, tensor in hf_tensors(SIZES).items():
        plain[name] = tensors[name] = tensor
        if "_proj" in name:
            config, parts, plain[name] = gptq(4, "gptq", shape=tensor.shape)
            del tensors[name]
            tensors |= {part.replace("a.", name.removesuffix("weight"), 1): parts[part] for part in parts}
    expected = tree(SIZES, plain)
    target = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), expected)
    with open_folder(folder, config, tensors | biases, {}) as checkpoint:
        return load(checkpoint, target, RULES), expected


def test_biases_of_zeros_are_left(tmp_path):
    names = [name for name in hf_tensors(SIZES) if "_proj" in name]
    biases = {
        name.replace("weight", "bias"): np.zeros(len(tensor), np.float16)
        for name, tensor in hf_tensors(SIZES).items()
        if name in names
    }
    found, expected = loaded(tmp_path, biases)
    assert len(biases) == 7 * SIZES.num_layers
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), b), found, expected)


@pytest.mark.parametrize(
    ("name", "bias"),
    [
        (OF_DOWN, np.full(SIZES.model_dim, 1e-3, np.float16)),
        (OF_DOWN, np.full(SIZES.model_dim, np.nan, np.float16)),
        (OF_DOWN, np.zeros(SIZES.model_dim + 1, np.float16)),
        (OF_NORM, np.zeros(SIZES.model_dim, np.float16)),
        ("other.bias", np.zeros(SIZES.model_dim, np.float16)),
    ],
    ids=["small values", "NaN", "another length", "of a norm", "of no matrix"],
)
def test_other_tensors_are_refused(name, bias, tmp_path):
    with pytest.raises(CheckpointError, match=f"unexpected: {name}"):
        loaded(tmp_path, {name: bias})
