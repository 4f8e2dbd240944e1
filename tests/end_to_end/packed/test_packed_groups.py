"""Groups of GPTQ, AWQ, compressed-tensors and bitsandbytes stay packed: tokens are those of the decoded weights."""

import json
import re

import jax
import numpy as np
import pytest

from checkpoints.mapping.never_packed import MIXED_ROWS, ORDER_DIVIDED, ORDERS_DIFFER, UNEVEN
from jaxserve import LLM, SamplingParams, pure
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_source import open_model
from jaxserve.engine.build.packing import choose_packing, packing_report
from jaxserve.engine.build.packing.block_products import DeviceKind, form_on
from jaxserve.engine.build.packing.choose_packing import with_packing
from pallas_kernels.block_forms.table_forms import NestedScales, num_parted_runs, without_nesting
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import QTensor, encode
from tests.checkpoints import safetensors_builder as build
from tests.checkpoints.quantized_builder import GROUP, awq, compressed_ints, eight_bits, fp4, fp8, gptq, nf4
from tests.checkpoints.random_models import Sizes, hf_config, hf_tensors
from tests.end_to_end.packed.test_packed_blocks import CPU, TPU, packing_of

SIZES = Sizes(num_heads=4, num_kv_heads=2, head_dim=32, model_dim=128, mlp_dim=256, vocab_size=128, num_layers=2)
LONG_ROWS = Sizes(num_heads=8, num_kv_heads=4, head_dim=128, model_dim=1024, mlp_dim=2560, vocab_size=128, num_layers=1)
CONSTANT = ("_shape", "_map", "__nf4")
PROMPTS = [np.random.default_rng(i).integers(3, SIZES.vocab_size, 4 + 3 * i).tolist() for i in range(4)]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
OPTIONS = {"dtype": "float32", "max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 32}
OPTIONS |= {"buckets": "4 32x4", "skip_tokenizer_init": True}


def int4(shape):
    return compressed_ints(4, is_packed=True, is_symmetric=True, num_groups=shape[1] // GROUP, shape=shape)


def config_of(sizes):
    return hf_config(sizes) | {"max_position_embeddings": 64}


CONFIG = config_of(SIZES)


def write_model(folder, make, sizes=SIZES):
    """A model whose layers' matrices `make` quantizes; returns the bytes of codes, scales and zero points."""
    tensors, stored, config = {}, 0, None
    for name, values in hf_tensors(sizes).items():
        if "proj" not in name:
            tensors[name] = values
            continue
        config, parts, _ = make(shape=values.shape)
        own = {name.removesuffix("weight") + part.removeprefix("a."): value for part, value in parts.items()}
        stored += sum(value.nbytes for part, value in own.items() if not part.endswith(CONSTANT))
        tensors |= own
    folder.mkdir()
    build.write(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config_of(sizes) | {"quantization_config": config}))
    return stored


def in_any_order(num_inputs):
    """The groups of act-order, alike in matrices with the same inputs."""
    return np.random.default_rng(num_inputs).permutation(num_inputs) // GROUP


def floats_and_ints(shape):
    """Blocks of FP8 in the MLPs, and integers in attention."""
    floats, tensors, _ = fp8("block", shape, (128, 128))
    ints, others, _ = int4(shape)
    groups = {"floats": floats["config_groups"]["group_0"], "ints": ints["config_groups"]["group_0"]}
    return floats | {"config_groups": groups}, tensors if SIZES.mlp_dim in shape else others, None


def two_widths(shape):
    """8 bits for keys and values, which are a part of qkv, 4 for the other matrices."""
    four, eight = (
        compressed_ints(bits, is_packed=True, is_symmetric=True, num_groups=shape[1] // GROUP, shape=shape)
        for bits in (4, 8)
    )
    groups = {str(i): config["config_groups"]["group_0"] for i, (config, *_) in enumerate((four, eight))}
    is_kv = shape[0] == SIZES.num_kv_heads * SIZES.head_dim
    return four[0] | {"config_groups": groups}, (eight if is_kv else four)[1], None


def four_bits(shape):
    """NF4, in the MLPs with double quantization."""
    config, tensors, _ = nf4(is_nested=SIZES.mlp_dim in shape, shape=shape)
    return config, tensors | {"a.weight.quant_map": tensors["a.weight.quant_map"] / 32}, None


def nested_four_bits(shape):
    """As bitsandbytes writes it by default."""
    config, tensors, _ = nf4(is_nested=True, nested=256, shape=shape)
    return config, tensors | {"a.weight.quant_map": tensors["a.weight.quant_map"] / 32}, None


def rows_of_8_bits(shape):
    config, tensors, _ = eight_bits(shape)
    return config, tensors | {"a.SCB": tensors["a.SCB"] / 32}, None


MAKERS = {
    "gptq of 3 bits": (lambda shape: gptq(3, "gptq_v2", in_any_order(shape[1]), shape), 1.02),
    "awq": (awq, 1.02),
    "compressed-tensors": (floats_and_ints, 1.02),
    "bitsandbytes": (four_bits, 1.06),  # more of longer rows have a factor of their factors in common
}
"""And how many times the bytes of the file a device has."""


def texts(folder, **options):
    llm = LLM(str(folder), **OPTIONS, **options)
    return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY, use_tqdm=False)], llm


def packed_leaves(llm):
    leaves = jax.tree.leaves(llm.parts.runner.params, is_leaf=lambda leaf: isinstance(leaf, BlockTensor))
    return [leaf for leaf in leaves if isinstance(leaf, BlockTensor)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", MAKERS)
def test_groups_stay_packed_where_that_is_asked_for(name, tmp_path):
    make, most = MAKERS[name]
    stored = write_model(tmp_path / "model", make)
    plain, decoded = texts(tmp_path / "model")
    assert not packed_leaves(decoded)
    found, llm = texts(tmp_path / "model", quantization="packed")
    assert found == plain
    assert len({tuple(text) for text in found}) > 1, "texts depend on the prompt"
    assert len(packed_leaves(llm)) == 4, "qkv, o, gate_up, down"
    # qkv has the order of its inputs once, and the file three times.
    assert 0.98 * stored <= device_bytes(packed_leaves(llm)) <= most * stored


@pytest.mark.thorough
def test_projections_of_a_matrix_may_have_different_bits(tmp_path):
    write_model(tmp_path / "model", two_widths)
    found, llm = texts(tmp_path / "model", quantization="packed")
    assert found == texts(tmp_path / "model")[0]
    assert len(packed_leaves(llm)) == 6, "q, k, v, o, gate_up, down"


@pytest.mark.thorough
def test_rows_of_bitsandbytes_stay_codes(tmp_path):
    write_model(tmp_path / "model", rows_of_8_bits)
    plain, decoded = texts(tmp_path / "model", quantization="dense")
    found, llm = texts(tmp_path / "model")
    assert found == plain
    assert decoded.parts.runner.settings.model.packing.name == ""
    leaves = jax.tree.leaves(llm.parts.runner.params, is_leaf=lambda leaf: isinstance(leaf, QTensor))
    assert sum(isinstance(leaf, QTensor) for leaf in leaves) == 4, "qkv, o, gate_up, down"


@pytest.mark.parametrize("kind", ["nvfp4", "mxfp4"])
def test_fp4_of_compressed_tensors_is_coded_in_8_bits_where_that_is_asked_for(kind, tmp_path):
    """No device keeps its codes."""
    write_model(tmp_path / "model", lambda shape: fp4(kind, shape))

    (dense,), (coded,) = (
        pure.load(str(tmp_path / "model"), dtype="float32", quantization=name).params["layers"].values()
        for name in ("dense", "int8")
    )
    matrices = {name for name, leaf in coded.items() if isinstance(leaf, QTensor)}
    assert matrices == {"qkv", "o", "gate_up", "down"}
    for name in matrices:
        codes, scales = encode(np.asarray(dense[name]))
        np.testing.assert_array_equal(coded[name].codes, codes)
        np.testing.assert_allclose(coded[name].scales, scales, rtol=1e-6)
        assert (codes != 0).any()


def test_gpus_and_tpus_keep_what_their_kernels_multiply(tmp_path):
    """Rows of scales that have fewer than 16 bytes are copied whole on a GPU."""
    write_model(tmp_path / "model", floats_and_ints)
    config = EngineConfig.create(str(tmp_path / "model"), quantization="packed")
    with open_model(config) as source:
        kept = with_packing(config, source, DeviceKind("tpu", "TPU v6 lite")).packing
        assert {path.rpartition("/")[2] for path, _ in kept.own} == {"qkv", "o", "gate_up", "down"}
        kept = with_packing(config, source, DeviceKind("gpu", "NVIDIA H200")).packing
        assert {path.rpartition("/")[2] for path, _ in kept.own} == {"gate_up", "down"}
        assert {path.rpartition("/")[2] for path, _ in kept.reasons} == {"qkv", "o"}, "groups of few integers"
        with pytest.raises(ConfigError, match="blocks are for CPUs, TPUs and Hopper GPUs"):
            with_packing(config, source, DeviceKind("gpu", "NVIDIA A100"))


@pytest.mark.thorough
def test_a_gpu_has_the_scales_of_double_quantization(tmp_path, monkeypatch):
    """As the file's codes: of tokens that are those of the decoded weights, and of its bytes."""
    stored = write_model(tmp_path / "model", nested_four_bits, LONG_ROWS)
    plain, _ = texts(tmp_path / "model")
    # On a CPU as on a GPU.
    monkeypatch.setattr(choose_packing, "form_on", lambda _, dtype: form_on(DeviceKind("gpu", "NVIDIA H200"), dtype))
    for num_devices in (1, 2):
        found, llm = texts(tmp_path / "model", quantization="packed", tensor_parallel_size=num_devices)
        assert found == plain
        assert len({tuple(text) for text in found}) > 1, "texts depend on the prompt"
        (layers,) = llm.parts.runner.params["layers"].values()
        packed = {name: leaf for name, leaf in layers.items() if isinstance(leaf, BlockTensor)}
        assert packed.keys() == {"qkv", "gate_up", "o", "down"}
        assert all(isinstance(leaf.form.scales, NestedScales) for leaf in packed.values())
        if num_devices == 1:
            assert stored <= device_bytes([*packed.values()]) <= 1.02 * stored


@pytest.mark.thorough
def test_double_quantization_is_divided_over_devices_and_saved(tmp_path):
    """Rows are blocks, of which a device has a share where inputs are divided. Those of `down` have parts of runs."""
    write_model(tmp_path / "model", nested_four_bits, LONG_ROWS)
    plain, _ = texts(tmp_path / "model")
    folder = tmp_path / "model"
    for num_devices, block_len in ((2, 512), (4, 256), (1, 256)):
        found, llm = texts(folder, quantization="packed", tensor_parallel_size=num_devices)
        assert found == plain
        assert len(packed_leaves(llm)) == 4
        assert all(isinstance(leaf.form.scales, NestedScales) for leaf in packed_leaves(llm))
        assert min(leaf.form.block_len for leaf in packed_leaves(llm)) == block_len
        assert any(num_parted_runs(leaf.form) for leaf in packed_leaves(llm))
        llm.save(folder := tmp_path / f"saved from {num_devices}")


@pytest.mark.thorough
def test_a_gpu_has_the_scales_of_double_quantization_in_short_rows_as_numbers(tmp_path, monkeypatch):
    """Codes would take more bytes, with an outer scale and an offset of each row. The kernel rounds scales. Of the MLPs
    only `down` has enough inputs for it."""
    write_model(tmp_path / "model", four_bits)
    config = EngineConfig.create(str(tmp_path / "model"), quantization="packed", dtype="bfloat16")
    with open_model(config) as source:
        forms = {
            device.platform: dict(with_packing(config, source, device).packing.own)
            for device in (DeviceKind("cpu"), DeviceKind("gpu", "NVIDIA H200"))
        }
    (down,) = (path for path in forms["cpu"] if path.endswith("/down"))
    assert isinstance(forms["cpu"][down].scales, NestedScales)
    assert forms["gpu"] == {down: without_nesting(forms["cpu"][down], "bfloat16")}
    plain, _ = texts(tmp_path / "model")
    # On a CPU as on a GPU.
    monkeypatch.setattr(choose_packing, "form_on", lambda *_: lambda form, *_: without_nesting(form))
    for num_devices in (1, 2):
        found, llm = texts(tmp_path / "model", quantization="packed", tensor_parallel_size=num_devices)
        assert len(packed_leaves(llm)) == 4, "also those whose inputs are divided"
        assert not any(isinstance(leaf.form.scales, NestedScales) for leaf in packed_leaves(llm))
        assert found == plain
    exact = packed_leaves(llm)
    monkeypatch.setattr(choose_packing, "form_on", lambda *_: lambda form, *_: without_nesting(form, "bfloat16"))
    _, llm = texts(tmp_path / "model", quantization="packed")
    scales, exact = (jax.tree.leaves([leaf.fields["scales"] for leaf in own]) for own in (packed_leaves(llm), exact))
    assert {own.dtype.name for own in scales} == {"bfloat16", "float32"}, "outside the MLPs the file has numbers"
    for own, number in zip(scales, exact, strict=True):
        np.testing.assert_array_equal(own, np.asarray(number).astype(own.dtype))


@pytest.mark.thorough
def test_devices_have_whole_groups(tmp_path):
    write_model(tmp_path / "model", int4)
    found, llm = texts(tmp_path / "model", quantization="packed", tensor_parallel_size=2)
    assert found == texts(tmp_path / "model")[0]
    assert len(packed_leaves(llm)) == 4


@pytest.mark.thorough
def test_orders_of_their_own_are_parts_of_rows_and_are_decoded_in_a_gate(tmp_path):
    rng = np.random.default_rng(0)
    write_model(tmp_path / "model", lambda shape: gptq(4, "gptq", rng.permutation(shape[1]) // GROUP, shape))
    found, llm = texts(tmp_path / "model", quantization="packed")
    assert found == texts(tmp_path / "model")[0]
    (layers,) = llm.parts.runner.params["layers"].values()
    assert isinstance(layers["qkv"], RowParts)
    assert len(packed_leaves(llm)) == 5, "q, k, v, o, down"
    assert all(len(leaf.order) == SIZES.num_layers for leaf in packed_leaves(llm))
    reasons = {path.rpartition("/")[2]: reason for path, reason in llm.parts.runner.settings.model.packing.reasons}
    assert reasons == {"gate_up": ORDERS_DIFFER}


@pytest.mark.parametrize("device", [CPU, TPU])
def test_an_order_is_not_divided_over_devices(device, tmp_path):
    """But refused where "packed" is asked for, and decoded by default."""
    write_model(tmp_path / "model", lambda shape: gptq(4, "gptq", in_any_order(shape[1]), shape))

    def packing(quantization, num_devices):
        return packing_of(tmp_path / "model", device, quantization, tensor_parallel_size=num_devices)[1]

    message = rf"over 2 devices \(down, o: {re.escape(ORDER_DIVIDED)}\): use fewer devices"
    with pytest.raises(ConfigError, match=message) as failed:
        packing("packed", 2)
    assert failed.value.param == "quantization"
    assert not packing("packed", 1).reasons
    if device.platform == "tpu":
        found = packing("auto", 2)
        assert {path.rpartition("/")[2] for path, _ in found.own} == {"qkv", "gate_up"}
        assert {(path.rpartition("/")[2], reason) for path, reason in found.reasons} == {
            ("o", ORDER_DIVIDED),
            ("down", ORDER_DIVIDED),
        }
    else:
        assert not packing("auto", 2).own


def test_codes_without_a_form_are_named_where_others_of_their_type_have_one(tmp_path, caplog):
    """Groups of different lengths in `down`, and rows of codes while the MLPs are dense."""
    caplog.set_level("INFO", "jaxserve")
    group = np.maximum(np.arange(SIZES.mlp_dim) - 1, 0) // GROUP
    write_model(tmp_path / "groups", lambda shape: gptq(4, "gptq", group if shape[1] == len(group) else None, shape))
    packing = pure.load(str(tmp_path / "groups"), quantization="packed").settings.packing
    assert {path.rpartition("/")[2] for path, _ in packing.own} == {"qkv", "o", "gate_up"}

    def partly(shape):
        config, tensors, _ = rows_of_8_bits(shape)
        return config, {"a.weight": np.ones(shape, np.float32)} if SIZES.mlp_dim in shape else tensors, None

    write_model(tmp_path / "rows", partly)
    pure.load(str(tmp_path / "rows"))
    lines = [(found.levelname, found.message) for found in caplog.records if found.name == packing_report.__name__]
    uneven = f"INT4-g{GROUP} weights and others decoded from GPTQ-4 (down: {UNEVEN})"
    mixed = f"weights decoded from BNB-INT8 (o: {MIXED_ROWS}; qkv: {MIXED_ROWS})"
    assert lines == [
        ("WARNING", f"{tmp_path / 'groups'} is loaded with {uneven}"),
        ("INFO", f"{tmp_path / 'rows'} is loaded with {mixed}"),
    ]
