"""A GGUF file becomes a folder with the same weights, token ids and end-of-sequence ids."""

import json

import numpy as np
import pytest

from jaxserve.text.chat_template import chat_template_from_folder
from jaxserve.text.tokenizer_from_folder import tokenizer_from_folder
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.checkpoints import gguf_builder as build
from tests.checkpoints.gguf_builder import Typed
from tests.checkpoints.random_models import Sizes, gguf_tensors, hf_tensors
from tests.jaxserve.convert.test_convert import assert_same_model, convert, tree_of
from tests.jaxserve.text.small_vocab import byte_level, sentencepiece

TEXTS = ("hello hello", "o <|im_end|>hell<tool>", "  hé</s>llo  ", "")
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"


def arrays(metadata):
    """Lists as typed arrays, as in the file."""
    kinds = {str: 8, int: 5, float: 6}
    lists = {key: Typed(9, value, kinds[type(value[0])]) for key, value in metadata.items() if isinstance(value, list)}
    return metadata | lists


def gguf_file(path, kind, vocabulary, *, is_gemma):
    sizes = Sizes(vocab_size=len(vocabulary["tokenizer.ggml.tokens"]), num_layers=7 if is_gemma else 2)
    name = "gemma3" if is_gemma else "llama"
    model = {
        "general.architecture": name,
        f"{name}.embedding_length": sizes.model_dim,
        f"{name}.block_count": sizes.num_layers,
        f"{name}.feed_forward_length": sizes.mlp_dim,
        f"{name}.attention.head_count": sizes.num_heads,
        f"{name}.attention.head_count_kv": sizes.num_kv_heads,
        f"{name}.attention.key_length": sizes.head_dim,
        f"{name}.attention.value_length": sizes.head_dim,
        f"{name}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{name}.context_length": 64,
        "tokenizer.chat_template": TEMPLATE,
    }
    if is_gemma:
        model["gemma3.attention.sliding_window"] = 8
    tensors = gguf_tensors(sizes, hf_tensors(sizes, is_gemma=is_gemma), kind, is_gemma=is_gemma)
    return build.write(path, tensors, model | arrays(vocabulary))


VOCABULARIES = {
    "byte level": byte_level(bos_token_id=256 + 5, eos_token_id=256 + 6, add_bos_token=True),
    "sentencepiece": sentencepiece(eot_token_id=1),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", ["safetensors", "orbax"])
@pytest.mark.parametrize("is_gemma", [False, True])
@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_gguf_file_becomes_a_folder_that_says_the_same(name, is_gemma, form, tmp_path):
    vocabulary = VOCABULARIES[name]
    source = gguf_file(tmp_path / "m.gguf", "Q8_0", vocabulary, is_gemma=is_gemma)
    folder = convert(source, tmp_path / "out", "--format", form, "--dtype", "float32")
    (model, ours), (described, theirs) = tree_of(folder), tree_of(source)
    assert_same_model((described, ours), (described, theirs))
    assert (model.kinds, model.layer_kinds, model.is_tied) == (
        described.kinds,
        described.layer_kinds,
        described.is_tied,
    )
    before, after = tokenizer_from_gguf(vocabulary), tokenizer_from_folder(folder)
    for text in TEXTS:
        assert after.encode(text) == before.encode(text)
        assert after.decode(after.encode(text)) == before.decode(before.encode(text))
    assert (after.bos_id, after.special_ids) == (before.bos_id, before.special_ids)
    assert set(after.eos_ids) == set(before.eos_ids)
    written = chat_template_from_folder(folder).render([{"role": "user", "content": "x"}])
    assert written == f"{before.id_to_piece(before.bos_id)}x{before.id_to_piece(before.eos_ids[0])}"


def test_block_types_are_written_decoded_and_once_rounded(tmp_path):
    source = gguf_file(tmp_path / "m.gguf", "Q4_0", VOCABULARIES["byte level"], is_gemma=False)
    folder = convert(source, tmp_path / "out")
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    (_, ours), (_, theirs) = tree_of(folder, dtype="bfloat16"), tree_of(source, dtype="bfloat16")
    np.testing.assert_array_equal(ours["layers"]["global"]["qkv"], theirs["layers"]["global"]["qkv"])


def test_a_file_without_a_tokenizer_becomes_a_folder_without_one(tmp_path, caplog):
    """As `convert_to_gguf` writes them of such folders. Nothing is overwritten before this is known."""
    vocabulary = {"tokenizer.ggml.tokens": VOCABULARIES["byte level"]["tokenizer.ggml.tokens"]}
    source = gguf_file(tmp_path / "m.gguf", "Q8_0", vocabulary, is_gemma=False)
    folder = convert(source, tmp_path / "out", "--dtype", "float32")
    (_, ours), (described, theirs) = tree_of(folder), tree_of(source)
    assert_same_model((described, ours), (described, theirs))
    assert not (folder / "tokenizer.json").exists()
    assert "the folder gets no tokenizer" in caplog.text
