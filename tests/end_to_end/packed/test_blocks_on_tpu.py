"""Which blocks of a file stay packed on a TPU, and that engines keep the file's numbers (here on a CPU)."""

import numpy as np
import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build import build
from jaxserve.engine.build.model_source import open_model
from jaxserve.engine.build.packing import choose_packing
from jaxserve.engine.build.packing.block_products import form_on
from jaxserve.engine.build.packing.choose_packing import with_packing
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import with_half_bits, without_half_bits
from pallas_kernels.block_forms.wide_blocks import WIDE_FORMS
from tests.end_to_end.packed.test_packed_blocks import H200, LAYERS, SHAPES, TPU, texts, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("blocks") / "mixed.gguf")[0]


def packing_of(path, quantization="packed", **options):
    config = EngineConfig.create(str(path), quantization=quantization, **options)
    with open_model(config) as source:
        return with_packing(config, source, TPU).packing


def names(packing):
    """Of forms; of the parts of a matrix, three."""
    return {
        path: tuple(without_half_bits(part).name for part in form)
        if isinstance(form, tuple)
        else without_half_bits(form).name
        for path, form in packing.own
    }


def test_one_device_multiplies_all_matrices(model):
    """Keys and values of forms of their own, parts of 64 rows, and the embedding that is the head as well."""
    of_layers = [
        dict.fromkeys(("qkv", "o", "gate_up", "down"), "Q4_1"),
        {"qkv": ("Q5_0", "Q5_0", "Q8_0"), "o": "Q5_0", "gate_up": "Q5_0", "down": "Q6_K"},
        {"qkv": ("Q4_K", "Q4_K", "Q6_K"), "o": "Q4_K", "gate_up": "Q4_K", "down": "Q5_K"},
    ]
    expected = {f"layers/global_{i}/{name}": form for i, forms in enumerate(of_layers) for name, form in forms.items()}
    assert names(packing_of(model)) == expected | {"embed": "Q8_0"}


def test_of_several_devices_each_multiplies_its_part(model):
    """Of two each has half a block of the inputs of o in Q4_K. Of four, whose KV heads are repeated, each has 64 inputs
    of o, fewer than a chunk. Each has its rows of the embedding that is the head."""
    fives, fours = ("Q5_0", "Q5_0", "Q8_0"), ("Q4_K", "Q4_K", "Q6_K")
    two = [dict.fromkeys(("qkv", "o", "gate_up", "down"), "Q4_1")]
    two.append({"qkv": fives, "gate_up": "Q5_0", "down": "Q6_K"})
    two.append({"qkv": fours, "gate_up": "Q4_K", "down": "Q5_K"})
    four = [dict.fromkeys(("qkv", "gate_up", "down"), "Q4_1")]
    four += [{"qkv": fives, "gate_up": "Q5_0"}, {"qkv": fours, "gate_up": "Q4_K"}]
    for num_devices, of_layers in ((2, two), (4, four)):
        found = names(packing_of(model, "auto", tensor_parallel_size=num_devices))
        layers = {f"layers/global_{i}/{name}": form for i, own in enumerate(of_layers) for name, form in own.items()}
        assert found == layers | {"embed": "Q8_0"}


@pytest.mark.parametrize("device", [TPU, H200])
def test_rows_that_have_no_whole_blocks_of_kernels_keep_those_of_the_file(device):
    fives, halves = GGML_FORMS["Q5_0"], with_half_bits if device == TPU else lambda form: form
    assert form_on(device, "bfloat16")(fives, 384) == halves(fives)
    assert form_on(device, "bfloat16")(fives, 512) == halves(WIDE_FORMS["Q5_0"])


def test_halves_are_kept_as_bits(model):
    forms = [form if isinstance(form, tuple) else (form,) for _, form in packing_of(model).own]
    fields = [field for parts in forms for part in parts for field in part.fields]
    assert {field.dtype for field in fields} == {"uint16", "uint8", "int8"}


def test_files_of_which_nothing_is_kept_are_refused_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(choose_packing, "form_on", lambda *_: lambda form, *_: with_half_bits(form))
    path, _ = write_model(tmp_path / "fives.gguf", [dict.fromkeys(SHAPES, "Q5_0")])
    with pytest.raises(ConfigError, match=r"cannot keep the blocks .* bits of Q5_0 lie in runs of 1 bytes"):
        packing_of(path)


@pytest.mark.thorough
def test_bits_of_halves_are_the_files_numbers(model, monkeypatch):
    """Tokens are those of the decoded weights."""
    decoded, _ = texts(model, "dense")
    monkeypatch.setattr(build, "with_packing", lambda config, source, _: with_packing(config, source, TPU))
    found, llm = texts(model, "packed")
    assert found == decoded
    stacks = llm.parts.runner.params["layers"]
    scales = stacks["global_0"]["o"].fields["scales"][0]
    assert scales.dtype == np.uint16
    assert len(stacks) == len({tuple(kinds.items()) for kinds in LAYERS})
