"""What is read of an adapter is what PEFT adds to each matrix; files that do not fit are refused with the reason."""

import math

import ml_dtypes
import numpy as np
import pytest

from checkpoints.adapters.read_adapter import read_adapter
from checkpoints.errors import CheckpointError
from checkpoints.fetch import hf_hub
from tests.checkpoints.adapters.adapter_files import NUM_LAYERS, PREFIX, SHAPES, tensors, write

ALL = tuple(SHAPES)
FIRST = f"{PREFIX}0.self_attn.q_proj.lora_A.weight"


def read(folder, max_rank=16):
    return read_adapter(str(folder), SHAPES, NUM_LAYERS, max_rank)


def product(values, layer, module, scale, prefix=PREFIX):
    a, b = (values[f"{prefix}{layer}.{module}.lora_{side}.weight"].astype(np.float32) for side in "AB")
    return scale * b @ a


def test_the_folder_of_the_files_is_known(tmp_path, monkeypatch):
    """Of the hub that of one commit."""
    folder = write(tmp_path / "snapshot", tensors())
    monkeypatch.setattr(hf_hub, "fetch_files", lambda repo, *_: folder)
    assert read("org/name").folder == read(folder).folder == str(folder)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_matrices_of_every_type_are_scaled_in_float32(dtype, tmp_path):
    values = tensors(dtype=dtype)
    found = read(write(tmp_path, values))
    assert (found.rank, len(found.matrices)) == (4, 2 * NUM_LAYERS)
    for (layer, part), matrix in found.matrices.items():
        assert matrix.a.dtype == matrix.b.dtype == np.float32
        expected = product(values, layer, f"self_attn.{part}_proj", 8 / 4)
        np.testing.assert_allclose(matrix.b @ matrix.a, expected, rtol=1e-5)


def test_each_module_has_its_own_scale(tmp_path):
    """The first expression that matches counts; alpha is divided by the root of the rank."""
    values = tensors("qv") | tensors("v", rank=9, layers=[1]) | tensors("q", rank=2, layers=[2])
    patterns = {"rank_pattern": {"layers.1.self_attn.v_proj": 9, r"layers\.2\..*q_proj": 2, "v_proj": 4}}
    patterns["alpha_pattern"] = {"^model.layers.0.self_attn.q_proj": 3, "[qk]_proj": 5.5}
    found = read(write(tmp_path, values, use_rslora=True, **patterns))
    expected = {(0, "q"): 3 / 2, (1, "q"): 5.5 / 2, (2, "q"): 5.5 / math.sqrt(2), (0, "v"): 8 / 2, (1, "v"): 8 / 3}
    for (layer, part), scale in expected.items():
        delta = found.matrices[layer, part].b @ found.matrices[layer, part].a
        np.testing.assert_allclose(delta, product(values, layer, f"self_attn.{part}_proj", scale), rtol=1e-5, atol=1e-6)
    assert found.rank == 9


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [
        ("base_model.model.model.layers.", ".default.weight"),
        ("base_model.model.model.language_model.layers.", ".weight"),
        ("base_model.model.language_model.model.layers.", ".weight"),
        ("model.layers.", ".weight"),
        ("layers.", ".my-adapter.weight"),
    ],
)
def test_names_may_have_other_first_words(prefix, suffix, tmp_path):
    expected = read(write(tmp_path / "a"))
    found = read(write(tmp_path / "b", tensors(prefix=prefix, suffix=suffix)))
    assert found.matrices.keys() == expected.matrices.keys()
    assert all(np.array_equal(found.matrices[key].a, expected.matrices[key].a) for key in found.matrices)


def test_rows_of_fused_modules_are_divided(tmp_path):
    rng, values = np.random.default_rng(1), {}
    for module, num_out in (("self_attn.qkv_proj", 24), ("mlp.gate_up_proj", 24)):
        values[f"{PREFIX}1.{module}.lora_A.weight"] = rng.standard_normal((4, 8), np.float32)
        values[f"{PREFIX}1.{module}.lora_B.weight"] = rng.standard_normal((num_out, 4), np.float32)
    found = read(write(tmp_path, values, target_modules=["qkv_proj", "gate_up_proj"], layers_to_transform=1)).matrices
    assert set(found) == {(1, part) for part in ("q", "k", "v", "gate", "up")}
    for module, parts in (("self_attn.qkv_proj", "q k v"), ("mlp.gate_up_proj", "gate up")):
        rows = np.concatenate([found[1, part].b @ found[1, part].a for part in parts.split()])
        np.testing.assert_allclose(rows, product(values, 1, module, 2), rtol=1e-5, atol=1e-6)
        assert len({id(found[1, part].a) for part in parts.split()}) == 1


@pytest.mark.parametrize(
    ("parts", "layers", "config"),
    [
        (ALL, range(3), {"target_modules": "all-linear"}),
        (ALL, range(3), {"target_modules": "ALL-LINEAR"}),
        ("qv", range(3), {"target_modules": r".*\.self_attn\.[qv]_proj"}),
        ("qv", range(3), {"target_modules": ["self_attn.q_proj", "v_proj", "w1"]}),
        ("qv", [0, 2], {"layers_to_transform": [0, 2]}),
        ("qv", [0, 2], {"layers_to_transform": [0, 2], "layers_pattern": "layers"}),
        ("q", range(3), {"exclude_modules": ["v_proj"]}),
        ("q", [1], {"target_modules": ["model.layers.1.self_attn.q_proj"], "layers_to_transform": [0]}),
        ("q", [0, 1], {"target_modules": ["q_proj"], "exclude_modules": r".*\.2\..*"}),
    ],
)
def test_targets_name_the_modules_that_the_file_has(parts, layers, config, tmp_path):
    found = read(write(tmp_path, tensors(parts, layers=layers), **config))
    assert set(found.matrices) == {(layer, part) for layer in layers for part in parts}


@pytest.mark.parametrize(
    ("values", "config", "reason"),
    [
        (tensors("qvo"), {}, r"unexpected: model\.layers\.0\.self_attn\.o_proj is not one of target_modules"),
        (tensors(layers=[0, 1]), {}, r"missing: model\.layers\.2\.self_attn\.q_proj is one of target_modules"),
        (tensors(), {"layers_to_transform": [0]}, r"unexpected: model\.layers\.1"),
        (tensors(), {"layers_to_transform": [0, 1, 2, 7]}, "layers_to_transform has 7, and the model has 3"),
        (tensors(layers=[0, 3]), {}, r"layers\.3\.self_attn\.q_proj \(the model has 3 layers\)"),
        (tensors(), {"r": 8}, "has rank 4, the configuration says 8"),
        (tensors(), {"rank_pattern": {"(q": 4}}, r"the expression '\(\?:\.\*\\\\\.\)\?\(\(q\)' has a \( without \)"),
        (tensors(rank=17), {"r": 17}, r"rank 17; from 1 to 16 is accepted \(max_lora_rank\)"),
        (tensors(rank=0), {}, "rank 0; from 1 to 16"),
        ({}, {}, "it has none"),
        (tensors(dtype=np.float64), {}, "is F64; F32, F16, BF16 are read"),
        ({FIRST: np.ones((4, 8), np.float32)}, {}, "alone: .*q_proj.lora_A.weight has no lora_B"),
        (tensors() | {FIRST: np.ones((4, 9), np.float32)}, {}, r"is \[4, 9\], the model needs \[rank, 8\]"),
        (tensors() | {FIRST: np.ones(4, np.float32)}, {}, "has 1 axes, not 2"),
        (tensors() | {FIRST: np.full((4, 8), np.nan, np.float32)}, {}, f"{FIRST}' holds values that are not finite"),
        (tensors() | tensors(suffix=".default.weight"), {}, "twice: .* are the same tensor"),
        (tensors("qv") | {f"{PREFIX}0.x.weight": np.ones(1, np.float32)}, {}, "not a part of a LoRA adapter"),
        (tensors() | {"base_model.model.lm_head.lora_A.weight": np.ones(1, np.float32)}, {}, "of the head"),
        (tensors() | {"model.embed_tokens.lora_embedding_A": np.ones(1, np.float32)}, {}, "of the embedding"),
        (tensors() | {FIRST.replace("A.weight", "B.bias"): np.ones(1, np.float32)}, {}, "biases of adapters"),
        (tensors() | {FIRST.replace("A.weight", "magnitude_vector"): np.ones(1, np.float32)}, {}, "DoRA"),
        (tensors() | {f"{PREFIX}0.mlp.experts.1.w1.lora_A.weight": np.ones(1, np.float32)}, {}, "of experts"),
        (tensors() | {f"vision_tower.{FIRST}": np.ones(1, np.float32)}, {}, "not a matrix of this model's layers"),
        (tensors() | {"x" * 10**6: np.ones(1, np.float32)}, {}, "unexpected: x{200} "),
        ({f"x{i}": np.ones(1, np.float32) for i in range(50)}, {}, "has 50 tensors; .* at most 42"),
    ],
)
def test_files_that_do_not_fit_are_refused(values, config, reason, tmp_path):
    folder = write(tmp_path, values, **config)
    with pytest.raises(CheckpointError, match=reason) as refusal:
        read(folder)
    assert str(folder / "adapter_model.safetensors") in str(refusal.value)
    assert len(str(refusal.value)) < 8000


def test_one_matrix_is_not_adapted_twice(tmp_path):
    fused = {f"{PREFIX}0.self_attn.qkv_proj.lora_A.weight": np.ones((4, 8), np.float32)}
    fused[f"{PREFIX}0.self_attn.qkv_proj.lora_B.weight"] = np.ones((24, 4), np.float32)
    with pytest.raises(CheckpointError, match=r"q_proj and .*qkv_proj have the same rows"):
        read(write(tmp_path, tensors() | fused))


def test_a_scale_may_not_make_values_infinite(tmp_path):
    values = {name: np.full_like(value, 1e35) for name, value in tensors().items()}
    assert read(write(tmp_path, values)).rank == 4
    with pytest.raises(CheckpointError, match="not finite"):
        read(write(tmp_path, values, lora_alpha=1e5))
