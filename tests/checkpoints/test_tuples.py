"""A tree with a tuple of arrays in place of a stack, one array per layer, is read and saved as the stack is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors.numpy import save_file

from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.load import load
from checkpoints.loading.orbax_restore import restore
from checkpoints.mapping.trees import by_path, leaf_dtype, stacked_shape, with_leaves
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from checkpoints.tensor_names import llama_names
from checkpoints.writing.orbax_save import save
from tests.checkpoints.random_models import Sizes, hf_tensors, tree

SPECS = {"qkv": P("tensor"), "o": P(None, "tensor"), "gate_up": P(None, "tensor"), "down": P(None, "tensor")}
SIZES = Sizes(kv_repeat=2)  # of two KV heads, for four devices


def in_tuples(values):
    """The tree with its matrices in tuples; of stacks only the norms are left."""
    layers = {
        kind: {name: tuple(leaf) if name in SPECS else leaf for name, leaf in leaves.items()}
        for kind, leaves in values["layers"].items()
    }
    return values | {"layers": layers}


def on(mesh, values):
    def struct(path, leaf):
        spec = next((SPECS[key.key] for key in path if getattr(key, "key", None) in SPECS), P())
        spec = spec if isinstance(path[-1], jax.tree_util.SequenceKey) else P(*[None] * (spec != P()), *spec)
        sharding = mesh and NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(leaf.shape, jnp.float32, sharding=sharding)

    return jax.tree_util.tree_map_with_path(struct, values)


def four_devices():
    return jax.make_mesh((4,), ("tensor",), (AxisType.Auto,), devices=jax.devices()[:4])


def assert_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("mesh", [lambda: None, four_devices], ids=["no mesh", "four devices"])
def test_tensors_of_a_file_fill_the_layers_of_tuples(mesh, tmp_path):
    tensors = hf_tensors(SIZES)
    values = in_tuples(tree(SIZES, tensors))
    (tmp_path / "config.json").write_text('{"model_type": "test"}')
    save_file(tensors, tmp_path / "model.safetensors")
    target = on(mesh(), values)
    with open_checkpoint(resolve(str(tmp_path))) as checkpoint:
        loaded = load(checkpoint, target, llama_names.rules("hf", SIZES.dims))
    assert_same(loaded, values)
    if mesh():
        assert jax.tree.map(lambda a: a.sharding, loaded) == jax.tree.map(lambda s: s.sharding, target)


@pytest.mark.parametrize(("saved_as", "read_as"), [(dict, in_tuples), (in_tuples, dict), (in_tuples, in_tuples)])
def test_what_was_saved_from_either_form_is_read_as_either(saved_as, read_as, tmp_path):
    values = tree(SIZES, hf_tensors(SIZES))
    shapes = {path: leaf.shape for path, leaf in by_path(tree(SIZES.with_repeat(1), hf_tensors(SIZES))).items()}
    from_tree = saved_as(values)
    put = jax.tree.map(lambda v, s: jax.device_put(v, s.sharding), from_tree, on(four_devices(), from_tree))
    save(tmp_path / "orbax", put, shapes, SIZES.dims)
    expected = read_as(values)
    assert_same(restore(OrbaxFile(tmp_path / "orbax"), on(four_devices(), expected), shapes, SIZES.dims), expected)


def test_a_tuple_is_a_leaf_with_the_shape_of_the_stack():
    values = in_tuples(tree(SIZES, hf_tensors(SIZES)))
    leaves = by_path(values)
    assert "layers/local/qkv" in leaves
    stacked = {path: leaf.shape for path, leaf in by_path(tree(SIZES, hf_tensors(SIZES))).items()}
    assert {path: stacked_shape(leaf) for path, leaf in leaves.items()} == stacked
    assert {leaf_dtype(leaf) for leaf in leaves.values()} == {np.dtype("float32")}
    assert_same(with_leaves(values, leaves.values()), values)
