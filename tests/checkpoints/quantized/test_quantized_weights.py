"""Every format of quantized weights decodes to the values that its formula gives, code by code."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints.errors import CheckpointError
from checkpoints.load import load
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.quantized.bit_fields import unpacked
from checkpoints.sources import resolve
from checkpoints.tensor_names import llama_names
from tests.checkpoints import safetensors_builder as build
from tests.checkpoints.quantized_builder import (
    GROUP,
    NUM_GROUPS,
    RANDOM,
    SHAPE,
    awq,
    compressed_ints,
    eight_bits,
    fp4,
    fp8,
    gptq,
    nf4,
    one_scale,
    packed,
)
from tests.checkpoints.random_models import Sizes, hf_tensors, tree

QUANTIZED = Path("tests/goldens/quantized")
GOLDENS = sorted(path.name for path in QUANTIZED.iterdir())
GROUPS = RANDOM.permutation(np.arange(SHAPE[1]) // GROUP)
CASES = {
    **{f"gptq, {bits} bits, {form}": gptq(bits, form) for bits in (2, 3, 4, 8) for form in ("gptq", "gptq_v2")},
    "gptq, inputs in any order": gptq(4, "gptq", GROUPS),
    "gptq, a last group of fewer inputs": gptq(4, "gptq", shape=(32, 192), group_len=128),
    "awq": awq(),
    "awq, a last group of fewer inputs": awq(shape=(32, 192), group_len=128),
    "packed integers": compressed_ints(4, is_packed=True, is_symmetric=True, num_groups=NUM_GROUPS),
    "packed integers, zero points": compressed_ints(4, is_packed=True, is_symmetric=False, num_groups=NUM_GROUPS),
    "packed integers of 8 bits": compressed_ints(8, is_packed=True, is_symmetric=True, num_groups=1),
    "packed integers, inputs in any order": compressed_ints(
        4, is_packed=True, is_symmetric=True, num_groups=NUM_GROUPS, group=GROUPS
    ),
    "packed integers, a last group of fewer inputs": compressed_ints(
        4, is_packed=True, is_symmetric=False, num_groups=2, shape=(32, 192), group_len=128
    ),
    **{
        f"packed integers of {bits} bits, {'in two words' if are_split else 'whole in a word'}": compressed_ints(
            bits, is_packed=True, is_symmetric=False, num_groups=NUM_GROUPS, are_split=are_split
        )
        for bits in (3, 5, 6, 7)
        for are_split in (True, False)
    },
    "integers": compressed_ints(8, is_packed=False, is_symmetric=True, num_groups=1),
    "integers, zero points": compressed_ints(8, is_packed=False, is_symmetric=False, num_groups=1),
    "integers in groups": compressed_ints(4, is_packed=False, is_symmetric=True, num_groups=NUM_GROUPS),
    "integers, one scale": one_scale(),
    "nvfp4": fp4("nvfp4"),
    "mxfp4": fp4("mxfp4"),
    "nf4": nf4(is_nested=False),
    "nf4, stored as float32": nf4(is_nested=False, block=32, shape=(32, 36), storage="float32"),
    "nf4, stored as bfloat16": nf4(is_nested=False, storage="bfloat16"),
    "nf4, double quantization": nf4(is_nested=True),
    "nf4, two factors of factors in a row": nf4(is_nested=True, block=32, shape=(32, 384)),
    "nf4, blocks over rows": nf4(is_nested=True, block=96),
    "bitsandbytes, 8 bits": eight_bits(),
    "fp8, one scale": fp8("tensor"),
    "fp8, rows": fp8("channel", scales=np.float32),
    "fp8, blocks": fp8("block"),
    "fp8, blocks with scales in float32": fp8("block", scales=np.float32),
    "fp8, blocks that are cut off": fp8("block", block=(20, 40)),
}


NORM = {"norm.weight": np.ones(4, np.float32)}


def open_folder(folder, config, tensors, others=NORM):
    build.write(folder / "model.safetensors", tensors | others)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": config}))
    return open_checkpoint(resolve(str(folder)))


@pytest.mark.parametrize("name", CASES)
def test_rows_of_any_range_are_decoded(name, tmp_path):
    config, tensors, expected = CASES[name]
    with open_folder(tmp_path, config, tensors) as checkpoint:
        assert set(checkpoint.tensors) == {"a.weight", "norm.weight"}
        info = checkpoint.tensors["a.weight"]
        assert info.shape == expected.shape
        assert info.nbytes == sum(tensor.nbytes for tensor in tensors.values())
        for start, stop in [(0, SHAPE[0]), (5, 5), (7, 18), (SHAPE[0] - 1, SHAPE[0])]:
            rows = checkpoint.file.read_rows("a.weight", start, stop)
            assert rows.dtype == np.float32
            np.testing.assert_array_equal(rows, expected[start:stop])


MODELS = {
    "gptq": lambda shape: gptq(4, "gptq", shape=shape),
    "awq": awq,
    "packed integers": lambda shape: compressed_ints(
        4, is_packed=True, is_symmetric=False, num_groups=shape[1] // GROUP, shape=shape
    ),
    "nvfp4": lambda shape: fp4("nvfp4", shape),
    "nf4": lambda shape: nf4(is_nested=True, shape=shape),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_loads_as_its_decoded_weights(name, tmp_path):
    sizes, tensors, plain, config = Sizes().with_repeat(2), {}, {}, None
    for tensor_name, tensor in hf_tensors(sizes).items():
        plain[tensor_name] = tensors[tensor_name] = tensor
        if "_proj" in tensor_name:
            config, parts, plain[tensor_name] = MODELS[name](tensor.shape)
            del tensors[tensor_name]
            tensors |= {part.replace("a.", tensor_name.removesuffix("weight"), 1): parts[part] for part in parts}
    expected = tree(sizes, plain)
    target = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), expected)
    with open_folder(tmp_path, config, tensors, {}) as checkpoint:
        loaded = load(checkpoint, target, llama_names.rules("hf", sizes.dims))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), b), loaded, expected)


@pytest.mark.parametrize("name", GOLDENS)
def test_weights_decode_as_the_libraries_decode_them(name):
    """Those that define the formats (`scripts/goldens/quantized.py`). Some multiply in another order."""
    expected = np.load(QUANTIZED / name / "decoded.npy")
    with open_checkpoint(resolve(str(QUANTIZED / name))) as checkpoint:
        found = checkpoint.file.read_rows("a.weight", 0, len(expected))
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-30)


@pytest.mark.parametrize("name", ["gptq-v2-4", "gptq-v2-4-act-order"])
@pytest.mark.parametrize("left_out", ["checkpoint_format", "a.g_idx"])
def test_the_version_and_the_order_are_in_these_goldens(name, left_out, tmp_path):
    """Without either the weights are others, but for groups that are in order."""
    tensors = load_file(QUANTIZED / name / "model.safetensors")
    config = json.loads((QUANTIZED / name / "config.json").read_text())["quantization_config"]
    for values in (tensors, config):
        values.pop(left_out, None)
    expected = np.load(QUANTIZED / name / "decoded.npy")
    with open_folder(tmp_path, config, tensors) as checkpoint:
        found = checkpoint.file.read_rows("a.weight", 0, len(expected))
    is_same = np.allclose(found, expected, rtol=3e-7)
    assert is_same == (left_out == "a.g_idx" and name == "gptq-v2-4")


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 8])
def test_codes_that_lie_in_two_words_are_joined(bits):
    codes = RANDOM.integers(0, 2**bits, (3, 96)).astype(np.uint8)
    np.testing.assert_array_equal(unpacked(packed(codes, bits, axis=1), bits, axis=1), codes)
    np.testing.assert_array_equal(unpacked(packed(codes.T, bits, axis=0), bits, axis=0), codes.T)


def test_words_that_tools_write(tmp_path):
    """Of eight codes 0 to 7: as GPTQ's tools and compressed-tensors pack them, and as AutoAWQ does."""
    assert unpacked(np.array([[0x76543210]], np.int64).astype(np.int32), 4, axis=1).tolist() == [list(range(8))]
    tensors = {
        "a.qweight": np.array([[0x75316420]], np.int64).astype(np.int32),
        "a.qzeros": np.zeros((1, 1), np.int32),
        "a.scales": np.ones((1, 8), np.float16),
    }
    with open_folder(tmp_path, {"quant_method": "awq", "bits": 4}, tensors) as checkpoint:
        assert checkpoint.file.read_rows("a.weight", 0, 8)[:, 0].tolist() == list(range(8))


SIZES = {"gptq": "gptq, 4 bits, gptq", "awq": "awq", "compressed-tensors": "packed integers"}


@pytest.mark.parametrize("method", SIZES)
@pytest.mark.parametrize("size", [32, -1])
def test_groups_of_another_size_than_the_configured_are_refused(method, size, tmp_path):
    config, tensors, _ = CASES[SIZES[method]]
    weights = {"type": "int", "num_bits": 4, "strategy": "group", "group_size": size}
    config = config | {"group_size": size, "config_groups": {"a": {"weights": weights}}}
    with pytest.raises(CheckpointError, match=f"4 groups for 64 inputs, but group_size is {size}"):
        open_folder(tmp_path, config, tensors)


OTHER = {"gptq": {"dynamic": {"+:a": {"group_size": 16}}}, "awq": {"q_group_size": 16}}


@pytest.mark.parametrize("method", OTHER)
def test_a_size_is_also_read_elsewhere(method, tmp_path):
    config, tensors, expected = CASES[SIZES[method]]
    with open_folder(tmp_path, config | {"group_size": 32} | OTHER[method], tensors) as checkpoint:
        np.testing.assert_array_equal(checkpoint.file.read_rows("a.weight", 0, SHAPE[0]), expected)


def test_integers_of_two_group_sizes_are_told_apart_by_their_scales(tmp_path):
    config, tensors, expected = CASES["packed integers"]
    (first,) = config["config_groups"].values()
    by_row = {"weights": {"type": "int", "num_bits": 4, "strategy": "channel"}}
    config = config | {"config_groups": {"a": first, "b": by_row}}
    with open_folder(tmp_path, config, tensors) as checkpoint:
        np.testing.assert_array_equal(checkpoint.file.read_rows("a.weight", 0, SHAPE[0]), expected)


@pytest.mark.parametrize("shape", [(32, 56), (32, 65), (31, 64), (32, -8)])
def test_codes_that_are_not_of_the_declared_shape_are_refused(shape, tmp_path):
    config, tensors, _ = CASES["packed integers"]
    _, refusal = opened(tmp_path, config, tensors | {"a.weight_shape": np.array(shape)})
    assert f"has no codes of 4 bits of {list(shape)}" in refusal


def test_the_last_word_of_a_row_may_have_codes_of_none(tmp_path):
    config, tensors, expected = CASES["packed integers"]
    with open_folder(tmp_path, config, tensors | {"a.weight_shape": np.array([32, 60])}) as checkpoint:
        np.testing.assert_array_equal(checkpoint.file.read_rows("a.weight", 0, SHAPE[0]), expected[:, :60])
        assert checkpoint.file.form_of("a.weight") is None


def changes(tensors):
    """Each of the tensors left out, with a row less, or with another type."""
    for name, tensor in tensors.items():
        rest = {other: values for other, values in tensors.items() if other != name}
        yield f"{name} left out", rest
        if tensor.ndim and len(tensor) > 1:
            yield f"{name} with a row less", rest | {name: tensor[:-1]}
        if tensor.ndim:
            yield f"{name} without rows", rest | {name: tensor[:0]}
        yield f"{name} of 64 bits", rest | {name: tensor.astype(np.float64)}


def opened(folder, config, tensors):
    """The tensors, or why they are refused."""
    try:
        with open_folder(folder, config, tensors) as checkpoint:
            return checkpoint.tensors, None
    except CheckpointError as error:
        return {}, str(error)


OPTIONAL = ("g_idx", "weight_shape", "weight_format", "zero_point", "global_scale")


def test_scales_and_zero_points_of_activations_are_left_out(tmp_path):
    config, tensors, _ = CASES["integers"]
    unused = {"a.input_scale": np.ones(1, np.float32), "a.input_zero_point": np.zeros(1, np.int8)}
    found, refusal = opened(tmp_path, config, tensors | unused)
    assert refusal is None
    assert set(found) == {"a.weight", "norm.weight"}


@pytest.mark.parametrize("name", CASES)
def test_tensors_that_do_not_fit_are_refused(name, tmp_path):
    """Or the weight is not taken for a quantized one, whose tensors then are none of the model's."""
    config, tensors, expected = CASES[name]
    for change, given in changes(tensors):
        if any(part in change for part in OPTIONAL) and "left out" in change:
            continue
        found, refusal = opened(tmp_path, config, given)
        if refusal is None:
            info = found.get("a.weight")
            assert info is None or info.shape != expected.shape or info.dtype in ("F64", "U8", "BNB-INT8"), change
        else:
            assert refusal.startswith(str(tmp_path))
            assert "1 quantized weights cannot be decoded\n" in refusal


@pytest.mark.parametrize(("bad", "text"), [(-1, "from -1"), (NUM_GROUPS, f"to {NUM_GROUPS}")])
def test_groups_that_do_not_exist_are_refused(bad, text, tmp_path):
    config, tensors, _ = CASES["gptq, inputs in any order"]
    groups = tensors["a.g_idx"].copy()
    groups[3] = bad
    with (
        open_folder(tmp_path, config, tensors | {"a.g_idx": groups}) as checkpoint,
        pytest.raises(CheckpointError, match=f"a.g_idx names groups .*{text}"),
    ):
        checkpoint.file.read_rows("a.weight", 0, 1)


STATES = {
    "no JSON": b"{",
    "no sizes": b"{}",
    "a size of text": b'{"shape": ["32", 64], "blocksize": 64}',
    "a negative size": b'{"shape": [-32, -64], "blocksize": 64}',
    "a block of nothing": b'{"shape": [32, 64], "blocksize": 0}',
    "a huge size": b'{"shape": [32, 4000000000], "blocksize": 64}',
    "another size": b'{"shape": [32, 128], "blocksize": 64}',
    "nested blocks of text": b'{"shape": [32, 64], "blocksize": 64, "nested_blocksize": "8"}',
    "too long": b" " * 20_000 + b'{"shape": [32, 64], "blocksize": 64}',
}


def test_a_small_block_is_named(tmp_path):
    config, tensors, _ = nf4(is_nested=False, block=16)
    with pytest.raises(CheckpointError, match="blocksize 16; it must be at least 32"):
        open_folder(tmp_path, config, tensors)


@pytest.mark.parametrize("name", STATES)
def test_states_that_do_not_fit_are_refused(name, tmp_path):
    config, tensors, _ = CASES["nf4"]
    state = {"a.weight.quant_state.bitsandbytes__nf4": np.frombuffer(STATES[name], np.uint8)}
    with pytest.raises(CheckpointError, match="1 quantized weights cannot be decoded"):
        open_folder(tmp_path, config, tensors | state)


UNKEPT = ("nvfp4", "mxfp4", "over rows", "bitsandbytes", "cut off", "fewer inputs", "as float32")
GROUPED = [name for name in CASES if not any(part in name for part in UNKEPT)]


@pytest.mark.parametrize("name", GROUPED)
def test_fields_of_devices_stand_for_the_same_values(name, tmp_path):
    config, tensors, expected = CASES[name]
    with open_folder(tmp_path, config, tensors) as checkpoint:
        form = checkpoint.file.form_of("a.weight")
        for start, stop in [(0, SHAPE[0]), (7, 18)]:
            fields = checkpoint.file.read_fields("a.weight", start, stop)
            assert {field.name: fields[field.name].dtype.name for field in form.fields} == {
                field.name: field.dtype for field in form.fields
            }
            with jax.disable_jit():
                found = form.decode({key: jnp.asarray(values) for key, values in fields.items()}, jnp.float32)
            order = checkpoint.file.order_of("a.weight")
            assert (order is None) == ("any order" not in name)
            np.testing.assert_array_equal(found, expected[start:stop] if order is None else expected[start:stop, order])


def test_the_order_is_found_once_for_all_pieces(tmp_path, monkeypatch):
    config, tensors, _ = CASES["gptq, inputs in any order"]
    with open_folder(tmp_path, config, tensors) as checkpoint:
        order = checkpoint.file.order_of("a.weight")
        checkpoint.file.form_of("a.weight")
        monkeypatch.setattr("checkpoints.quantized.gptq.order_of", lambda *_: pytest.fail("sorted again"))
        checkpoint.file.read_fields("a.weight", 0, 8)
        assert checkpoint.file.order_of("a.weight") is order


def test_groups_of_different_numbers_of_inputs_have_no_form(tmp_path):
    config, tensors, expected = gptq(4, "gptq", np.minimum(GROUPS + 1, NUM_GROUPS - 1))
    with open_folder(tmp_path, config, tensors) as checkpoint:
        assert checkpoint.file.form_of("a.weight") is None
        np.testing.assert_array_equal(checkpoint.file.read_rows("a.weight", 0, SHAPE[0]), expected)


@pytest.mark.parametrize("num_in", [1536, 4096, 14336])
def test_double_quantization_has_the_bytes_of_the_file(num_in, tmp_path):
    """Of large models: a row has factors of its factors of its own, and the offset."""
    config, tensors, _ = nf4(is_nested=True, shape=(8, num_in), nested=256)
    stored = sum(tensors[f"a.weight{part}"].nbytes for part in ("", ".absmax", ".nested_absmax"))
    with open_folder(tmp_path, config, tensors) as checkpoint:
        form, fields = checkpoint.file.form_of("a.weight"), checkpoint.file.read_fields("a.weight", 0, 8)
        assert stored <= sum(fields[field.name].nbytes for field in form.fields) <= 1.02 * stored


@pytest.mark.parametrize("name", ["integers", "packed integers of 8 bits", "bitsandbytes, 8 bits"])
def test_codes_of_rows_stand_for_the_same_values(name, tmp_path):
    config, tensors, expected = CASES[name]
    with open_folder(tmp_path, config, tensors) as checkpoint:
        assert checkpoint.file.row_scheme_of("a.weight") == "int8"
        for start, stop in [(0, SHAPE[0]), (7, 18)]:
            codes, scales = checkpoint.file.read_codes("a.weight", start, stop)
            assert (codes.dtype, scales.dtype) == (np.int8, np.float32)
            np.testing.assert_array_equal(codes.astype(np.float32) * scales[:, None], expected[start:stop])


@pytest.mark.parametrize("name", sorted(CASES.keys() - set(GROUPED)))
def test_other_weights_have_no_form(name, tmp_path):
    config, tensors, _ = CASES[name]
    with open_folder(tmp_path, config, tensors) as checkpoint:
        assert checkpoint.file.form_of("a.weight") is None


def test_codes_beyond_their_bits_are_decoded_but_not_packed(tmp_path):
    config, tensors, expected = CASES["integers in groups"]
    tensors = tensors | {"a.weight": tensors["a.weight"].copy()}
    tensors["a.weight"][3, 5] = 100
    with open_folder(tmp_path, config, tensors) as checkpoint:
        assert checkpoint.file.read_rows("a.weight", 3, 4)[0, 5] > expected[3, 5]
        with pytest.raises(CheckpointError, match="beyond 4 bits: use quantization='dense'"):
            checkpoint.file.read_fields("a.weight", 0, SHAPE[0])
