"""A model that is written as GGUF has the names, bytes and header that an independent converter gives it."""

import json
import tracemalloc

import gguf
import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGMLQuantizationType as Types

from checkpoints.errors import CheckpointError
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.quantized.forms.form_names import GGUF_NAMES
from checkpoints.quantized.forms.written_form import PIECE_BYTES
from checkpoints.sources import resolve
from checkpoints.writing.write_blocks import BLOCK_TYPES
from jaxserve.cli.quantize import run
from jaxserve.core.errors import ConfigError
from jaxserve.models.families import registry
from jaxserve.runner.load_weights import read_config
from tests.checkpoints import safetensors_builder as build
from tests.checkpoints.doubled_models import doubled
from tests.checkpoints.random_models import Sizes, gguf_tensors, hf_tensors
from tests.jaxserve.convert.test_convert import assert_same_model, tree_of
from tests.jaxserve.convert.test_quantize import config
from tests.support.gguf_checkpoints import write_gguf
from tests.support.golden_data import checkpoint

NOT_OF_MODEL = {"/torch_dtype"}


def quantize(source, path, scheme, *options):
    assert run([str(source), str(path), "--scheme", scheme, "--quiet", *options]) == 0
    return path


def described(source):
    with open_checkpoint(resolve(str(source))) as opened:
        return read_config(opened)


def type_of(name, shape, scheme):
    if len(shape) == 1:
        return Types.F32
    return Types[scheme.upper() if name.startswith("blk.") else "Q8_0"]


def header_of(reader, prefix):
    return {key: field.contents() for key, field in reader.fields.items() if key.startswith(prefix)}


def flat(value, path=""):
    """Numbers and texts of nested mappings and lists by their paths."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {key: leaf for name, inner in items for key, leaf in flat(inner, f"{path}/{name}").items()}
    return found if isinstance(value, dict | list) else {path: value}


def test_every_scheme_has_a_name():
    assert tuple(BLOCK_TYPES) == GGUF_NAMES


CONVERTED = ("llama3", "mistral", "qwen2", "qwen3", "gemma2", "phi3")


@pytest.mark.parametrize(("family", "scheme"), [("llama3", "q8_0"), *((family, "q4_0") for family in CONVERTED)])
def test_names_bytes_and_header_are_those_of_another_converter(family, scheme, tmp_path):
    source = doubled(family, tmp_path / "model")
    ours = gguf.GGUFReader(quantize(source, tmp_path / "ours.gguf", scheme))
    theirs = gguf.GGUFReader(write_gguf(source, tmp_path / "theirs.gguf"))
    expected = {tensor.name: tensor.data for tensor in theirs.tensors}
    assert {tensor.name for tensor in ours.tensors} == expected.keys()
    for tensor in ours.tensors:
        values = expected[tensor.name]
        assert tensor.tensor_type == type_of(tensor.name, values.shape, scheme)
        np.testing.assert_array_equal(tensor.data, quants.quantize(values, tensor.tensor_type))
    name = theirs.fields["general.architecture"].contents()
    header, wanted = header_of(ours, (name, "tokenizer", "general.arch")), header_of(theirs, (name, "tokenizer"))
    wanted = {key: value for key, value in wanted.items() if value}  # 0: without a window
    assert {key: header.get(key) for key in wanted} == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("family", ["llama2", "gemma3", "phi4"])
def test_the_model_is_read_back_as_it_was_but_for_its_codes(family, tmp_path):
    source = doubled(family, tmp_path / "model")
    path = quantize(source, tmp_path / "m.gguf", "q8_0")
    before, after = (flat(registry.to_hf(described(model))) for model in (source, path))
    assert after.keys() == before.keys()
    for key in before.keys() - NOT_OF_MODEL:
        assert after[key] == (pytest.approx(before[key], rel=1e-6) if isinstance(before[key], float) else before[key])
    (_, ours), (_, theirs) = tree_of(path), tree_of(source)
    for stack, leaves in theirs["layers"].items():
        for leaf, values in leaves.items():
            found, values = np.asarray(ours["layers"][stack][leaf]), np.asarray(values)
            step = np.abs(values).max() / 127 * (0.5 + 127 * 2**-11)  # scales are float16
            assert np.abs(found - values).max() <= (0 if "norm" in leaf or "bias" in leaf else step)


def test_gemma_3_has_the_tensors_of_another_converter(tmp_path):
    sizes = Sizes(num_layers=7)
    source = tmp_path / "model"
    source.mkdir()
    tensors = hf_tensors(sizes, is_gemma=True)
    build.write(source / "model.safetensors", tensors)
    of_gemma = {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "sliding_window": 8}
    of_gemma |= {"query_pre_attn_scalar": sizes.head_dim}
    (source / "config.json").write_text(json.dumps(config(sizes) | of_gemma))
    reader = gguf.GGUFReader(quantize(source, tmp_path / "m.gguf", "q8_0"))
    expected = {tensor.name: tensor.data for tensor in gguf_tensors(sizes, tensors, "Q8_0", is_gemma=True)}
    assert {tensor.name: tensor.data.tobytes() for tensor in reader.tensors} == expected


def test_blocks_of_blocks_are_the_same(tmp_path):
    """Of a GGUF file, whose tokenizer and name are kept."""
    first = quantize(doubled("llama3", tmp_path / "model"), tmp_path / "first.gguf", "q8_0")
    second = quantize(first, tmp_path / "second.gguf", "q8_0")
    assert_same_model(tree_of(second), tree_of(first))
    assert second.read_bytes() == first.read_bytes()


def test_what_has_no_such_form_is_refused_by_name_and_leaves_nothing(tmp_path):
    out = tmp_path / "m.gguf"
    with pytest.raises(CheckpointError, match=r"token_embd.weight cannot be quantized: 48 inputs are no multiple"):
        quantize(checkpoint("llama3"), out, "q4_0")
    with pytest.raises(ConfigError, match=r"no GGUF form .*qwen2.* attention.sliding_window"):
        quantize(checkpoint("qwen2"), out, "q4_0")
    with pytest.raises(ConfigError, match="architecture 'qwen3' have no tables of rope factors"):
        quantize(checkpoint("qwen3"), out, "q4_0")
    with pytest.raises(ConfigError, match="cannot say layer_types = "):
        quantize(checkpoint("gemma3"), out, "q4_0")
    assert not out.exists()


def test_files_are_replaced_on_demand_only(tmp_path, capsys):
    source, out = doubled("llama2", tmp_path / "model"), tmp_path / "m.gguf"
    out.write_bytes(b"another")
    with pytest.raises(CheckpointError, match="exists: name another file, or --overwrite it"):
        quantize(source, out, "q4_0")
    assert out.read_bytes() == b"another"
    quantize(source, out, "q4_0", "--overwrite")
    assert "has no tokenizer" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="is the source itself"):
        quantize(out, out, "q8_0", "--overwrite")
    for argv, said in {
        (tmp_path / "folder", "q4_0"): "writes one file: name a DST that ends in .gguf",
        (tmp_path / "x.gguf", "int8"): "writes a folder, not a file",
        (tmp_path / "x.gguf", "q8_0", "--dtype", "float32"): "--dtype has no use with --scheme q8_0",
        (tmp_path / "x.gguf", "q8_0", "--max-shard-size", "1MB"): "--max-shard-size has no use with --scheme q8_0",
    }.items():
        with pytest.raises(SystemExit):
            quantize(source, *argv)
        assert said in capsys.readouterr().err


def test_memory_holds_the_embedding_and_a_few_pieces(tmp_path):
    """Coded whole, it would take six times its bytes."""
    sizes = Sizes(vocab_size=40000, model_dim=256, mlp_dim=512, num_heads=8, head_dim=32)
    source = tmp_path / "model"
    source.mkdir()
    build.write(source / "model.safetensors", hf_tensors(sizes))
    (source / "config.json").write_text(json.dumps(config(sizes)))
    tracemalloc.start()
    try:
        quantize(source, tmp_path / "m.gguf", "q4_0")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    embedding = 4 * sizes.vocab_size * sizes.model_dim
    assert embedding < peak < embedding + 6 * PIECE_BYTES < 4 * embedding
