"""What the index of an Orbax folder says of packed matrices is held against the model before anything is read. The
folders of these tests are an index and no arrays."""

import json

import jax.numpy as jnp
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.formats.orbax_index import write_index
from checkpoints.formats.saved_form_keys import form_of_keys
from checkpoints.mapping.row_parts import has_parts, part_shapes
from checkpoints.mapping.saved_packing import form_of_fp8_rows
from checkpoints.mapping.trees import matrices
from jaxserve import LLM
from jaxserve.convert.convert_model import saved_tree
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.engine.build.packing.orbax_forms import saved_blocks, saved_rows
from jaxserve.models.families import registry
from jaxserve.models.packing import Packing
from jaxserve.models.param_spec import decoded_spec
from jaxserve.models.params import declare
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_tensor import RowParts
from pallas_kernels.qtensor import FP8, SCHEMES
from tests.end_to_end.packed.test_packed_groups import CONFIG, OPTIONS, SIZES

MODEL = registry.from_hf(CONFIG)
DENSE = saved_tree(MODEL, jnp.dtype("float32")).index
LAYERS = ("layer-00000", "layer-00001")
MATRICES = ("qkv", "o", "gate_up", "down")
ORDERED = "in any order int 4 64 float16 symmetric"
QKV = DENSE["layer-00000"]["qkv"][0]
OWN_PARTS = part_shapes(QKV, SIZES.head_dim)


def arrays_of(name, shape, keys):
    """The arrays of a matrix of this shape; of parts, of these shapes."""
    if isinstance(keys, list):
        parts = [arrays_of(f"{name}.parts.{i}", *own) for i, own in enumerate(zip(shape, keys, strict=True))]
        return {array: entry for part in parts for array, entry in part.items()}
    form = form_of_keys(name, keys)
    if not isinstance(form, BlockForm):
        return {f"{name}.codes": (shape, form.codes), f"{name}.scales": (shape[:-1], "float32")}
    *out, num_in = shape
    fields = {f"{name}.fields.{f.name}": ((*out, num_in // form.block_len * f.count), f.dtype) for f in form.fields}
    return fields | ({f"{name}.order": ((num_in,), "int32")} if form.has_order else {})


def folder(root, packed):
    """A model folder. packed: by "<part>/<leaf>" its keys, and its shape, if that is not the model's."""
    parts, forms = {part: dict(leaves) for part, leaves in DENSE.items()}, {part: {} for part in DENSE}
    for name, (keys, *shape) in packed.items():
        part, _, leaf = name.partition("/")
        dense = parts[part].pop(leaf, None)
        parts[part] |= arrays_of(leaf, shape[0] if shape else dense[0], keys)
        forms[part][leaf] = keys
    (root / "orbax").mkdir()
    write_index(root / "orbax", parts, forms)
    (root / "config.json").write_text(json.dumps(CONFIG))
    return root


def everywhere(keys):
    return {f"{layer}/{leaf}": (keys,) for layer in LAYERS for leaf in MATRICES}


def file_of(root, packed):
    return OrbaxFile(folder(root, packed) / "orbax")


def blocks_in(file):
    return saved_blocks(file, MODEL, 1, (), lambda form, *_: form)


def opened(root, quantization="packed"):
    return LLM(str(root), **OPTIONS, quantization=quantization)


@pytest.mark.parametrize(("layers", "ends"), [("int8", None), ("w8a8", "w8a8"), ("w8a8", "int8")])
def test_rows_of_codes_are_those_of_all_layers(layers, ends, tmp_path):
    packed = everywhere(layers) | ({"outside/embed": (ends,)} if ends else {})
    assert saved_rows(file_of(tmp_path, packed), MODEL) == Packing(SCHEMES[layers], SCHEMES.get(ends))


BESIDE_OTHERS = {
    "blocks in a layer": everywhere("int8") | {"layer-00001/down": ("Q4_0",)},
    "two schemes": everywhere("int8") | {"layer-00001/down": ("w8a8",)},
    "blocks, and an embedding": everywhere("Q4_0") | {"outside/embed": ("int8",)},
    "an embedding of blocks": everywhere("int8") | {"outside/embed": ("Q4_0",)},
    "an embedding alone": {"outside/embed": ("int8",)},
}


@pytest.mark.parametrize("name", BESIDE_OTHERS)
def test_rows_of_codes_mixed_with_others_are_refused(name, tmp_path):
    with pytest.raises(
        CheckpointError, match="rows of codes are for all matrices of the layers, not mixed with others"
    ):
        saved_rows(file_of(tmp_path, BESIDE_OTHERS[name]), MODEL)


def test_layers_have_the_forms_of_their_matrices(tmp_path):
    packed = everywhere("Q4_0") | {
        "layer-00001/qkv": (["Q4_0", "Q4_0", "Q8_0"], OWN_PARTS), "layer-00001/down": ("Q8_0",),
        "outside/embed": ("Q5_0",),
    }  # fmt: skip
    file = file_of(tmp_path, packed)
    assert saved_rows(file, MODEL) is None
    layers, ends, cut = blocks_in(file)
    q4, q8 = GGML_FORMS["Q4_0"], GGML_FORMS["Q8_0"]
    first = dict.fromkeys(MATRICES, q4)
    assert layers == [first, first | {"qkv": (q4, q4, q8), "down": q8}]
    assert (ends, cut) == ({"embed": GGML_FORMS["Q5_0"]}, set())


def test_rows_of_fp8_are_blocks_too(tmp_path):
    file = file_of(tmp_path, everywhere("fp8"))
    assert saved_rows(file, MODEL) == Packing(layers=FP8)
    layers, _, _ = blocks_in(file)
    num_inputs = dict.fromkeys(MATRICES, SIZES.model_dim) | {"down": SIZES.mlp_dim}
    assert layers == [{leaf: form_of_fp8_rows(num_inputs[leaf]) for leaf in MATRICES}] * 2


def test_what_a_model_has_not_packed_is_left_out(tmp_path):
    """An embedding is looked up by rows, whose inputs are in order; no other leaf than qkv has parts."""
    gate_up = DENSE["layer-00000"]["gate_up"][0]
    packed = everywhere("Q4_0") | {
        "outside/embed": (ORDERED,), "outside/lm_head": ("Q4_0", (128, 128)), "layer-00000/extra": ("Q4_0", (64, 64)),
        "layer-00000/gate_up": (["Q4_0"] * 3, part_shapes(gate_up, SIZES.head_dim)),
        "layer-00000/down": (ORDERED,), "outside/final_norm": ("Q4_0", (1, 128)),
    }  # fmt: skip
    layers, ends, _ = blocks_in(file_of(tmp_path, packed))
    assert ends == {}
    assert layers[0].keys() == {"qkv", "o", "down"}
    assert layers[0]["down"].has_order
    assert layers[1].keys() == set(MATRICES)


HEADS, QUERIES, NUM_IN = OWN_PARTS[0]
SHIFTED = [(HEADS, QUERIES - 1, NUM_IN), (HEADS, SIZES.head_dim + 1, NUM_IN), OWN_PARTS[2]]
GATES = [(2, 64, 128), (2, 96, 128), (2, 96, 128)]
FAULTS = {
    "a matrix": ({"layer-00001/extra": ("Q4_0", (64, 64))}, "unexpected: layer-00001/extra"),
    "a head": ({"outside/lm_head": ("Q4_0", (SIZES.vocab_size, 128))}, "unexpected: outside/lm_head"),
    "rows of another part": ({"layer-00000/qkv": (["Q4_0"] * 3, SHIFTED)}, "parts: layer-00000/qkv is rows"),
    "parts of no heads": ({"layer-00000/gate_up": (["Q4_0"] * 3, GATES)}, "parts: layer-00000/gate_up is rows"),
    "a shape": ({"layer-00000/o": ("Q4_0", (64, 128))}, r"shape: layer-00000/o is \[64, 128\], the model needs"),
}


def test_a_layer_of_another_folder_is_refused(tmp_path):
    """Dense, where the others are rows of codes."""
    packed = {name: keys for name, keys in everywhere("int8").items() if not name.startswith(LAYERS[1])}
    with pytest.raises(CheckpointError, match="form: layer-00001/down is float32, from which that of the engine"):
        opened(folder(tmp_path, packed))


@pytest.mark.parametrize("quantization", ["packed", "dense"])
@pytest.mark.parametrize("name", FAULTS)
def test_matrices_that_do_not_fit_the_model_are_refused_by_name(name, quantization, tmp_path):
    changed, fault = FAULTS[name]
    with pytest.raises(CheckpointError, match=fault):
        opened(folder(tmp_path, everywhere("Q4_0") | changed), quantization)


@pytest.mark.parametrize(
    ("packed", "asked", "forms"),
    [
        (everywhere("int8") | {"outside/embed": ("int8",)}, "w8a8", "float32, int8"),
        (everywhere("w8a8") | {"outside/embed": ("int8",)}, "int8", "float32, int8, w8a8"),
        (everywhere("w8a8"), "w8a8", "float32, w8a8"),
        (everywhere("Q4_0"), "int4-g32", "Q4_0, float32"),
        ({}, "int8", "float32"),
    ],
)
def test_other_schemes_than_its_own_are_refused_with_its_forms(packed, asked, forms, tmp_path):
    path = folder(tmp_path, packed)
    fault = f"quantization='{asked}': .* and {path}/orbax has {forms}: leave it out, or convert the folder to saf"
    with pytest.raises(ConfigError, match=fault):
        opened(path, asked)


def test_the_leaves_with_parts_are_those_that_the_model_declares():
    forms = tuple(GGML_FORMS[name] for name in ("Q4_0", "Q4_0", "Q8_0"))
    mesh = abstract_mesh(1)
    plain = {path: leaf for path, leaf in matrices(declare(MODEL, mesh, jnp.float32)).items() if "norm" not in path}
    parts = {}
    for path in plain:
        leaf = matrices(declare(MODEL, mesh, jnp.float32, packing=Packing(own=((path, forms),)))).get(path)
        if isinstance(leaf, RowParts) and leaf.parts:
            parts[path] = tuple(decoded_spec(part).shape[1:] for part in leaf.parts)
    assert parts == {path: OWN_PARTS for path in plain if has_parts(path)}
    assert len(parts) == 1
