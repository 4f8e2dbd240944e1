"""The real vocabularies give the ids and the text that transformers gives (scripts/goldens/tokenizer_goldens.py)."""

import pytest

REAL = ("smollm2-135m-instruct", "gemma-3-270m")


@pytest.mark.parametrize("name", REAL)
def test_ids_and_text_are_those_of_transformers(name, real_tokenizer, goldens):
    tokenizer, golden = real_tokenizer(name), goldens["models"][name]
    for text, ids, decoded in zip(goldens["texts"], golden["ids"], golden["decoded"], strict=True):
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids) == (text if decoded is None else decoded)
    assert tokenizer.encode_batch(goldens["texts"]) == golden["ids"]


def test_the_ids_of_a_well_known_sentence(real_tokenizer):
    assert real_tokenizer("smollm2-135m-instruct").encode("The capital of France is") == [504, 3575, 282, 4649, 314]


def test_digits_are_cut_before_spaces_are_joined(real_tokenizer):
    """Two spaces then "1": llama.cpp gives 256 33, where a GPT-2 split would give 216 216 33."""
    assert real_tokenizer("smollm2-135m-instruct").encode("  1") == [256, 33]


def test_the_special_ids_of_both(real_tokenizer):
    smollm2, gemma = map(real_tokenizer, REAL)
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_ids) == (49152, 1, (2,))
    assert (gemma.vocab_size, gemma.bos_id, gemma.eos_ids) == (262144, 2, (1, 106))
    assert smollm2.special_ids == set(range(17))
    assert gemma.encode("a")[0] == 2
    assert gemma.encode("a", add_special_tokens=False) == gemma.encode("a")[1:]
    assert smollm2.encode("a") == smollm2.encode("a", add_special_tokens=False)
    assert smollm2.id_to_piece(2) == "<|im_end|>"
    assert smollm2.piece_to_id("<|im_end|>") == 2


@pytest.mark.parametrize("name", REAL)
@pytest.mark.timeout(120)  # a tokenizer whose time grows with the square of the text takes an hour
def test_a_long_text_comes_back_whole(name, real_tokenizer):
    tokenizer = real_tokenizer(name)
    text = "Sphinx of black quartz, judge my vow. \u00e9\u4e2d\U0001f600\n" * 4000
    assert tokenizer.decode(tokenizer.encode(text)) == text
