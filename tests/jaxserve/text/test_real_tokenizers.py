"""The published vocabularies give the ids and the text of transformers (scripts/goldens/tokenizer_goldens.py)."""

import pytest

from tests.support.golden_tokenizers import ALL, IN_GGUF, goldens, tokenizer_of


@pytest.mark.parametrize("name", ALL)
def test_ids_and_text_are_those_of_transformers(name):
    tokenizer, texts, golden = tokenizer_of(name), goldens()["texts"], goldens()["models"][name]
    assert len(texts) > 80
    for text, ids, decoded in zip(texts, golden["ids"], golden["decoded"], strict=True):
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids) == (text if decoded is None else decoded)
    assert tokenizer.encode_batch(texts) == golden["ids"]


def test_the_ids_of_a_well_known_sentence():
    assert tokenizer_of("smollm2-135m-instruct").encode("The capital of France is") == [504, 3575, 282, 4649, 314]


def test_digits_are_cut_before_spaces_are_joined():
    """Two spaces then "1": llama.cpp gives 256 33, where a GPT-2 split would give 216 216 33."""
    assert tokenizer_of("smollm2-135m-instruct").encode("  1") == [256, 33]


def test_the_special_ids_of_two_files():
    smollm2, gemma = map(tokenizer_of, IN_GGUF)
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_ids) == (49152, 1, (2,))
    assert (gemma.vocab_size, gemma.bos_id, gemma.eos_ids) == (262144, 2, (1, 106))
    assert smollm2.special_ids == set(range(17))
    assert gemma.encode("a")[0] == 2
    assert gemma.encode("a", add_special_tokens=False) == gemma.encode("a")[1:]
    assert smollm2.encode("a") == smollm2.encode("a", add_special_tokens=False)
    assert smollm2.id_to_piece(2) == "<|im_end|>"
    assert smollm2.backend.token_to_id("<|im_end|>") == 2


def test_a_vocabulary_read_from_gguf_is_the_published_one():
    """SentencePiece merges are not in a GGUF file; they follow from the pieces and their scores."""
    published, from_gguf = tokenizer_of("gemma3"), tokenizer_of("gemma-3-270m")
    assert published.token_bytes[: from_gguf.vocab_size] == from_gguf.token_bytes
    for text in (*goldens()["texts"], *(f"x{space * num}y" for space in " \n\t\u2581" for num in range(80))):
        assert published.encode(text) == from_gguf.encode(text), repr(text)


def test_a_run_of_spaces_is_taken_from_the_left_in_the_longest_pieces_there_are():
    for name in ("gemma3", "gemma-3-270m"):
        tokenizer = tokenizer_of(name)
        assert [len(tokenizer.token_bytes[i]) for i in tokenizer.encode(" " * 40)[1:]] == [31, 9]


@pytest.mark.parametrize("name", IN_GGUF)
@pytest.mark.timeout(120)  # a tokenizer of quadratic time takes an hour
def test_a_long_text_comes_back_whole(name):
    tokenizer = tokenizer_of(name)
    text = "Sphinx of black quartz, judge my vow. \u00e9\u4e2d\U0001f600\n" * 4000
    assert tokenizer.decode(tokenizer.encode(text)) == text
