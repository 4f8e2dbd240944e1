"""Loading gives the tree of plain formulas on any sharding, and reads only what each device needs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors.numpy import save_file

import checkpoints.loading.pieces
from checkpoints.errors import CheckpointError
from checkpoints.load import load
from checkpoints.loading.shard_buffers import Leaf
from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import Rule, Run
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from checkpoints.tensor_names import gemma3_names, llama_names
from tests.checkpoints import gguf_builder as build
from tests.checkpoints.random_models import SPECS, Sizes, gguf_tensors, grouped, hf_tensors, tree


def checkpoint_of(folder, sizes, tensors, spelling, *, is_gemma=False, kind="F32"):
    if spelling == "hf":
        (folder / "config.json").write_text('{"model_type": "test"}')
        save_file(tensors, folder / "model.safetensors")
    else:
        build.write(folder / "model.gguf", gguf_tensors(sizes, tensors, kind, is_gemma=is_gemma))
    return open_checkpoint(resolve(str(folder)))


def structs(expected, num_devices=None, dtype=jnp.float32):
    """The target of an expected tree: tensor parallel on `num_devices`, or without a sharding."""
    mesh = num_devices and jax.make_mesh(
        (num_devices,), ("tensor",), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:num_devices]
    )

    def struct(path, leaf):
        spec = SPECS.get(path[-1].key, P())
        kept = jnp.float32 if "norm" in path[-1].key else dtype
        return jax.ShapeDtypeStruct(leaf.shape, kept, sharding=NamedSharding(mesh, spec) if mesh else None)

    return jax.tree_util.tree_map_with_path(struct, expected)


def assert_same(loaded, expected):
    assert jax.tree.structure(loaded) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), b.astype(a.dtype)), loaded, expected)


@pytest.mark.parametrize("num_devices", [None, 1, 4])
@pytest.mark.parametrize("spelling", ["hf", "gguf"])
@pytest.mark.parametrize("is_gemma", [False, True])
def test_both_spellings_of_both_families_give_the_tree(is_gemma, spelling, num_devices, tmp_path):
    sizes = Sizes().with_repeat(2 if num_devices == 4 else 1)
    tensors = hf_tensors(sizes, is_gemma=is_gemma)
    expected = tree(sizes, tensors, is_gemma=is_gemma)
    rules = (gemma3_names if is_gemma else llama_names).rules(spelling, sizes.dims)
    with checkpoint_of(tmp_path, sizes, tensors, spelling, is_gemma=is_gemma) as checkpoint:
        target = structs(expected, num_devices)
        loaded = load(checkpoint, target, rules)
    assert_same(loaded, expected)
    if num_devices:
        assert jax.tree.map(lambda a: a.sharding, loaded) == jax.tree.map(lambda s: s.sharding, target)


@pytest.mark.parametrize("piece_bytes", [1, 300, 5000])
def test_the_size_of_the_pieces_changes_nothing(piece_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints.loading.pieces, "PIECE_BYTES", piece_bytes)
    sizes = Sizes(num_kv_heads=1, kv_repeat=4)
    tensors = hf_tensors(sizes)
    expected = tree(sizes, tensors)
    with checkpoint_of(tmp_path, sizes, tensors, "gguf") as checkpoint:
        assert_same(load(checkpoint, structs(expected, 4), llama_names.rules("gguf", sizes.dims)), expected)


def test_weights_are_cast_once_and_norms_stay_float32(tmp_path):
    sizes = Sizes()
    tensors = hf_tensors(sizes)
    expected = tree(sizes, tensors)
    with checkpoint_of(tmp_path, sizes, tensors, "hf") as checkpoint:
        loaded = load(checkpoint, structs(expected, dtype=jnp.bfloat16), llama_names.rules("hf", sizes.dims))
    assert_same(loaded, expected)
    assert loaded["embed"].dtype == jnp.bfloat16
    assert loaded["final_norm"].dtype == jnp.float32


def test_block_types_load_as_their_decoded_values(tmp_path):
    sizes = Sizes()
    tensors = hf_tensors(sizes)
    stored = checkpoint_of(tmp_path, sizes, tensors, "gguf", kind="Q8_0")
    embed = stored.file.read_rows("token_embd.weight", 0, sizes.vocab_size)
    assert not np.array_equal(embed, tensors["model.embed_tokens.weight"])
    loaded = load(stored, structs(tree(sizes, tensors)), llama_names.rules("gguf", sizes.dims))
    np.testing.assert_array_equal(loaded["embed"][: sizes.vocab_size], embed)
    stored.close()


def test_rows_behind_the_vocabulary_stay_zero(tmp_path):
    sizes = Sizes(num_kv_heads=4)
    tensors = hf_tensors(sizes)
    with checkpoint_of(tmp_path, sizes, tensors, "hf") as checkpoint:
        loaded = load(checkpoint, structs(tree(sizes, tensors), 4), llama_names.rules("hf", sizes.dims))
    assert not np.asarray(loaded["embed"])[sizes.vocab_size :].any()


def test_progress_ends_at_the_bytes_of_the_file(tmp_path):
    sizes, calls = Sizes(), []
    tensors = hf_tensors(sizes)
    with checkpoint_of(tmp_path, sizes, tensors, "hf") as checkpoint:
        load(
            checkpoint,
            structs(tree(sizes, tensors)),
            llama_names.rules("hf", sizes.dims),
            progress=lambda *c: calls.append(c),
        )
    total = sum(tensor.nbytes for tensor in tensors.values())
    assert calls == sorted(calls)
    assert calls[-1] == (total, total)


def test_a_misfit_is_found_before_anything_is_read(tmp_path, monkeypatch):
    sizes = Sizes()
    tensors = hf_tensors(sizes)
    target = structs(tree(sizes, tensors))
    del tensors["model.norm.weight"]
    with checkpoint_of(tmp_path, sizes, tensors, "hf") as checkpoint:
        monkeypatch.setattr(type(checkpoint.file), "read_rows", lambda *_: pytest.fail("rows were read"))
        with pytest.raises(CheckpointError, match=r"model\.safetensors: .* 1 problem\n  missing: model\.norm\.weight"):
            load(checkpoint, target, llama_names.rules("hf", sizes.dims))


def test_each_device_is_sent_its_own_columns_only(tmp_path, monkeypatch):
    sizes, sent = Sizes(num_kv_heads=4), []
    tensors = hf_tensors(sizes)
    put = jax.device_put

    def count(value, place):
        sent.append(value[0].nbytes)
        return put(value, place)

    with checkpoint_of(tmp_path, sizes, tensors, "hf") as checkpoint:
        target = structs(tree(sizes, tensors), 4)
        monkeypatch.setattr(jax, "device_put", count)
        load(checkpoint, target, llama_names.rules("hf", sizes.dims))
    norms = sum(tensor.nbytes for tensor in tensors.values() if tensor.ndim == 1)
    weights = sum(tensor.nbytes for tensor in tensors.values() if tensor.ndim > 1)
    assert sum(sent) == weights + 4 * norms


@pytest.mark.parametrize("num_devices", [None, 4])
def test_vectors_are_placed_by_value_and_stacks_by_their_first_axis(num_devices, tmp_path):
    """As for the biases of the grouped projection and for experts."""
    sizes, rng = Sizes(num_kv_heads=2, kv_repeat=2, num_layers=1), np.random.default_rng(0)
    q, k, v = (rng.standard_normal(n * sizes.head_dim, np.float32) for n in (8, 2, 2))
    experts = rng.standard_normal((6, 5, 8), np.float32)
    places = {"q": at.query, "k": at.key, "v": at.value}
    rules = [Rule(name, "layers/{stack}/qkv_bias", place, sizes.dims) for name, place in places.items()]
    rules.append(Rule("experts", "layers/{stack}/down", at.layer, sizes.dims))
    bias = grouped(sizes, q[:, None], k[:, None], v[:, None])[None, ..., 0]
    expected = {"layers": {"local": {"qkv_bias": bias, "down": experts[None]}}}
    target = structs(expected)
    if num_devices:
        mesh = jax.make_mesh((4,), ("tensor",), (jax.sharding.AxisType.Auto,))
        specs = {"qkv_bias": P(None, "tensor"), "down": P(None, None, None, "tensor")}
        target = {
            "layers": {
                "local": {
                    name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, specs[name]))
                    for name, leaf in expected["layers"]["local"].items()
                }
            }
        }
    save_file({"q": q, "k": k, "v": v, "experts": experts}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    with open_checkpoint(resolve(str(tmp_path))) as checkpoint:
        assert_same(load(checkpoint, target, rules), expected)


def test_writes_happen_in_place():
    """Otherwise loading would hold two copies of the largest leaf."""
    leaf = Leaf(jax.ShapeDtypeStruct((4, 1000), jnp.float32))
    [shard] = leaf._shards
    address = shard.buffer.unsafe_buffer_pointer()
    for row in range(4):
        leaf.fill((Run(0, 1, (), row),), 0, np.ones((1, 1000), np.float32))
        assert shard.buffer.unsafe_buffer_pointer() == address
    assert np.asarray(leaf.filled()).all()
