"""A tree saved from one mesh is the same tree on any other, bit for bit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from checkpoints.errors import CheckpointError
from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.loading.orbax_restore import restore
from checkpoints.mapping.trees import by_path
from checkpoints.writing.orbax_save import save
from tests.checkpoints.random_models import SPECS, Sizes, hf_tensors, tree

SIZES = Sizes(vocab_size=323, padded_vocab=512)  # an odd vocabulary, two KV heads


def mesh_of(*shape):
    axes = ("data", "tensor")[-len(shape) :]
    count = int(np.prod(shape))
    return jax.make_mesh(shape, axes, (AxisType.Auto,) * len(shape), devices=jax.devices()[:count])


def on(mesh, expected, dtype=jnp.bfloat16):
    """The structs of a tree on a mesh; norms are float32."""

    def struct(path, leaf):
        sharding = mesh and NamedSharding(mesh, SPECS.get(path[-1].key, P()))
        kept = jnp.float32 if "norm" in path[-1].key else dtype
        return jax.ShapeDtypeStruct(leaf.shape, kept, sharding=sharding)

    return jax.tree_util.tree_map_with_path(struct, expected)


def put(values, structs):
    return jax.tree.map(lambda v, s: jax.device_put(v.astype(s.dtype), s.sharding), values, structs)


def saved_shapes(sizes):
    one = tree(sizes.with_repeat(1), hf_tensors(sizes))
    shapes = {path: leaf.shape for path, leaf in by_path(one).items()}
    return shapes | {"embed": (sizes.vocab_size, sizes.model_dim)}


def expected_with(kv_repeat, sizes=SIZES):
    wide = sizes.with_repeat(kv_repeat)
    return wide, tree(wide, hf_tensors(wide))


def assert_same(loaded, target, values):
    assert jax.tree.structure(loaded) == jax.tree.structure(values)
    for path, leaf in by_path(loaded).items():
        struct, value = by_path(target)[path], by_path(values)[path]
        assert leaf.dtype == struct.dtype
        assert struct.sharding is None or leaf.sharding.is_equivalent_to(struct.sharding, leaf.ndim)
        np.testing.assert_array_equal(np.asarray(leaf), value.astype(struct.dtype), err_msg=path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder saved from four devices, each KV head repeated twice."""
    root = tmp_path_factory.mktemp("saved") / "orbax"
    wide, values = expected_with(2)
    save(root, put(values, on(mesh_of(1, 4), values)), saved_shapes(SIZES), wide.dims)
    return root


@pytest.mark.parametrize(
    ("shape", "kv_repeat"),
    [((1, 4), 2), ((2, 2), 1), ((4, 1), 1), ((1,), 1), (None, 1), ((1, 4), 4)],
    ids=["1x4", "2x2", "4x1", "one device", "no mesh", "each head four times"],
)
def test_a_tree_saved_from_four_devices_is_itself_on_other_meshes(folder, shape, kv_repeat):
    wide, values = expected_with(kv_repeat)
    target = on(shape and mesh_of(*shape), values)
    calls = []
    loaded = restore(
        OrbaxFile(folder), target, saved_shapes(SIZES), wide.dims, progress=lambda *call: calls.append(call)
    )
    assert_same(loaded, target, values)
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] > 0


def test_what_is_saved_does_not_depend_on_the_mesh(folder, tmp_path):
    wide, values = expected_with(1)
    save(tmp_path / "orbax", put(values, on(mesh_of(1), values)), saved_shapes(SIZES), wide.dims)
    assert (tmp_path / "orbax" / "index.json").read_bytes() == (folder / "index.json").read_bytes()
    ours, theirs = OrbaxFile(tmp_path / "orbax"), OrbaxFile(folder)
    for name, info in theirs.tensors.items():
        a, b = (file.read_rows(name, 0, info.num_rows) for file in (ours, theirs))
        np.testing.assert_array_equal(a, b, err_msg=name)


def test_a_tree_may_be_restored_in_another_dtype(folder):
    wide, values = expected_with(1)
    target = on(mesh_of(2), values, jnp.float32)
    loaded = restore(OrbaxFile(folder), target, saved_shapes(SIZES), wide.dims)
    rounded = jax.tree.map(lambda v, s: v.astype(s.dtype), values, on(None, values))
    assert_same(loaded, target, rounded)


def test_each_layer_is_a_part_without_padding_and_copies(folder):
    file = OrbaxFile(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "index.json", "layer-00000", "layer-00001", "layer-00002", "outside"
    ]  # fmt: skip
    assert file.tensors["outside/embed"].shape == (323, 32)
    assert file.tensors["layer-00000/qkv"].shape == (2, (4 + 2) * 4, 32)


def test_another_model_is_refused_before_anything_is_read(folder, monkeypatch):
    monkeypatch.setattr("checkpoints.loading.orbax_restore.load_part", lambda *_: pytest.fail("a part was read"))
    sizes = replace(SIZES, num_layers=4, vocab_size=322)
    values = tree(sizes, hf_tensors(sizes))
    with pytest.raises(CheckpointError) as refusal:
        restore(OrbaxFile(folder), on(None, values), saved_shapes(sizes), sizes.dims)
    assert "missing: layer-00003/qkv" in str(refusal.value)
    assert "shape: outside/embed is [323, 32], the model needs [322, 32]" in str(refusal.value)
