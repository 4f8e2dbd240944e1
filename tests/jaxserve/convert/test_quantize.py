"""Quantized models are rounded to the nearest codes, are read back, and are written again by no one else's scheme."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints.errors import CheckpointError
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.quantized.forms.all_forms import FORMS
from checkpoints.quantized.forms.form_names import FORM_NAMES
from checkpoints.quantized.forms.group_range import SHARES
from checkpoints.quantized.forms.nf4_grid import VALUES
from checkpoints.sources import resolve
from jaxserve.cli.quantize import run
from pallas_kernels.qtensor import encode
from tests.checkpoints import safetensors_builder as build
from tests.checkpoints.random_models import Sizes, hf_config, hf_tensors

SIZES = Sizes(num_heads=8, num_kv_heads=2, head_dim=16, model_dim=128, mlp_dim=256)
INT4 = [name for name in FORMS if name.startswith("int4")]
ROUNDED = [name for name in FORMS if not name.startswith(("gptq", "awq"))]
ODD = replace(SIZES, head_dim=8)


def config(sizes):
    more = {"architectures": ["LlamaForCausalLM"], "head_dim": sizes.head_dim, "dtype": "float32"}
    return hf_config(sizes) | more


def model(folder, sizes=SIZES, **changes):
    folder.mkdir()
    tensors = hf_tensors(sizes) | changes
    build.write(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config(sizes)))
    return tensors


def quantize(source, folder, scheme, *options):
    assert run([str(source), str(folder), "--scheme", scheme, "--quiet", *options]) == 0
    return folder


def decoded(folder):
    with open_checkpoint(resolve(str(folder))) as checkpoint:
        found = {}
        for name, info in checkpoint.tensors.items():
            found[name] = checkpoint.file.read_rows(name, 0, info.num_rows).reshape(info.shape)
        return found


def largest_error(scheme, weight):
    """Half a step of each value's group; of FP8 and NF4 the steps are wider for larger values. Ranges of 4 bits may be
    narrower than their groups, which the next test looks at."""

    def largest(group_len):
        groups = np.abs(weight).reshape(len(weight), -1, group_len)
        return np.repeat(groups.max(axis=2), group_len, axis=1)

    if scheme == "fp8":
        # A row's scale is less than twice that by which its largest value has the largest code.
        return np.abs(weight) / 2**4 + 2 * largest(weight.shape[1]) / 448 * 2**-10
    if scheme == "nf4":
        return largest(64) * np.diff(VALUES).max() / 2
    return largest(weight.shape[1]) / 127 / 2


def test_every_form_has_a_name():
    assert tuple(FORMS) == FORM_NAMES


@pytest.mark.parametrize("scheme", [name for name in ROUNDED if name not in INT4])
def test_matrices_of_the_layers_are_rounded_to_the_nearest_codes(scheme, tmp_path):
    tensors = model(tmp_path / "model")
    found = decoded(quantize(tmp_path / "model", tmp_path / "out", scheme))
    assert found.keys() == tensors.keys()
    num_changed = 0
    for name, weight in tensors.items():
        if "_proj" not in name:
            np.testing.assert_array_equal(found[name], weight)
            continue
        error = np.abs(found[name] - weight)
        assert (error <= largest_error(scheme, weight) * (1 + 1e-5)).all()
        num_changed += int((error > 0).sum())
    assert num_changed > 1000


@pytest.mark.parametrize("scheme", INT4)
def test_values_of_4_bits_are_the_nearest_ones_in_the_range_of_their_group(scheme, tmp_path):
    """Of the 16 values that a group's scale and zero point in the file allow, of which the range is as wide as one of
    those that are tried."""
    tensors = model(tmp_path / "model")
    folder, group_len = quantize(tmp_path / "model", tmp_path / "out", scheme), int(scheme.partition("-g")[2])
    stored, found = load_file(folder / "model.safetensors"), decoded(folder)
    names = [name for name in tensors if "_proj" in name]
    assert len(names) == 21
    for name in names:
        weight, scales = tensors[name], stored[f"{name}_scale"]
        words = stored[f"{name}_zero_point"]  # 8 rows in each
        zeros = np.stack([words[row // 8] >> 4 * (row % 8) & 15 for row in range(len(weight))])
        groups = weight.reshape(len(weight), -1, group_len)
        nearest = np.full(groups.shape, np.inf, np.float32)
        for code in range(16):
            value = ((code - zeros) * scales)[..., None]
            is_nearer = np.abs(value - groups) < np.abs(nearest - groups)
            nearest = np.where(is_nearer, value, nearest)
        errors = np.abs(found[name].reshape(groups.shape) - groups)
        np.testing.assert_allclose(errors, np.abs(nearest - groups), rtol=1e-5, atol=1e-6)
        steps = (np.maximum(groups.max(axis=2), 0) - np.minimum(groups.min(axis=2), 0)) / 15
        shares = scales / steps
        assert (np.abs(shares[..., None] - np.array(SHARES)).min(axis=2) < 1e-5).all()
        np.testing.assert_array_equal(zeros, np.rint(-shares * np.minimum(groups.min(axis=2), 0) / scales))


def test_files_have_the_bytes_of_their_codes(tmp_path):
    tensors = model(tmp_path / "model")
    num_values = sum(tensor.size for name, tensor in tensors.items() if "_proj" in name)
    for scheme, bits in (("w8a8", 8), ("int8", 8), ("fp8", 8), ("int4-g64", 4.5), ("nf4", 4.5)):
        stored = load_file_sizes(quantize(tmp_path / "model", tmp_path / scheme, scheme))
        assert 1 <= stored / (num_values * bits / 8) < 1.06


def load_file_sizes(folder):
    """Bytes of the quantized matrices."""
    with open_checkpoint(resolve(str(folder))) as checkpoint:
        return sum(info.nbytes for name, info in checkpoint.tensors.items() if "_proj" in name)


def test_codes_are_those_of_weights_that_are_coded_while_loading(tmp_path):
    tensors = model(tmp_path / "model")
    found = load_file(quantize(tmp_path / "model", tmp_path / "out", "w8a8") / "model.safetensors")
    name = "model.layers.1.mlp.down_proj"
    codes, scales = encode(tensors[f"{name}.weight"])
    np.testing.assert_array_equal(found[f"{name}.weight"], codes)
    np.testing.assert_array_equal(found[f"{name}.weight_scale"][:, 0], scales)


def test_rows_of_zeros_stay_zeros(tmp_path):
    name = "model.layers.0.mlp.down_proj.weight"
    tensors = model(tmp_path / "model", **{name: np.zeros((SIZES.model_dim, SIZES.mlp_dim), np.float32)})
    for scheme in ROUNDED:
        found = decoded(quantize(tmp_path / "model", tmp_path / scheme, scheme))
        np.testing.assert_array_equal(found[name], tensors[name])


def test_values_that_are_not_finite_and_odd_sizes_are_refused(tmp_path):
    name = "model.layers.2.self_attn.o_proj.weight"
    weight = hf_tensors(SIZES)[name]
    weight[3, 5] = np.inf
    model(tmp_path / "model", **{name: weight})
    with pytest.raises(CheckpointError, match=f"{name} cannot be quantized: it has values that are not finite"):
        quantize(tmp_path / "model", tmp_path / "out", "nf4")
    model(tmp_path / "odd", ODD)
    with pytest.raises(
        CheckpointError, match=r"o_proj.weight cannot be quantized: 64 inputs are not a multiple of 128"
    ):
        quantize(tmp_path / "odd", tmp_path / "other", "int4-g128")
    assert not (tmp_path / "other").exists()


def test_a_folder_goes_on_with_its_scheme_only(tmp_path):
    model(tmp_path / "model")
    out = quantize(tmp_path / "model", tmp_path / "out", "int8", "--max-shard-size", "100KB")
    shards = sorted(out.glob("*.safetensors"))
    assert len(shards) > 2
    written = shards[1].read_bytes()
    shards[1].unlink()
    quantize(tmp_path / "model", out, "int8", "--max-shard-size", "100KB")
    assert shards[1].read_bytes() == written
    with pytest.raises(CheckpointError, match=r"holds a different conversion \(different scheme\)"):
        quantize(tmp_path / "model", out, "nf4", "--max-shard-size", "100KB")
