"""Two failures of the stream that the tokenizers package offers; ours has neither.

Each control shows that the package's `DecodeStream` does fail there: a release that mends it shows itself here.
"""

import pytest
from tokenizers.decoders import DecodeStream

from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import byte_level, sentencepiece
from tests.support.golden_tokenizers import tokenizer_of


def byte_ids(tokenizer):
    return {data[0]: i for i, data in enumerate(tokenizer.token_bytes) if len(data) == 1}


def spell(tokenizer, data):
    ids = byte_ids(tokenizer)
    return [ids[byte] for byte in data]


def steps_of_decode_stream(tokenizer, prompt_ids, ids):
    stream = DecodeStream(ids=prompt_ids, skip_special_tokens=True)
    return [stream.step(tokenizer.backend, token_id) or "" for token_id in ids]


@pytest.mark.parametrize("kind", ["small", "gemma3"])
def test_byte_fallback_ids_never_raise_invalid_prefix(kind):
    tokenizer = tokenizer_from_gguf(sentencepiece()) if kind == "small" else tokenizer_of(kind)
    newline_then_torn = [tokenizer.backend.token_to_id(piece) for piece in ("<0x0A>", "<0xE2>", "h")]
    stream = Detokenizer(tokenizer).stream()
    assert [stream.push([token_id]) for token_id in newline_then_torn] == ["\n", "", "\ufffdh"]
    assert tokenizer.decode(newline_then_torn) == "\n\ufffdh"
    with pytest.raises(Exception, match="Invalid prefix"):
        steps_of_decode_stream(tokenizer, [], newline_then_torn)


@pytest.mark.parametrize("kind", ["byte level", "byte fallback", "qwen3"])
def test_a_prompt_that_ends_inside_a_character_is_not_emitted(kind):
    small = {"byte level": byte_level, "byte fallback": sentencepiece}
    tokenizer = tokenizer_from_gguf(small[kind]()) if kind in small else tokenizer_of(kind)
    prompt, rest = spell(tokenizer, b"hello" + "\u20ac".encode()[:1]), spell(tokenizer, "\u20ac".encode()[1:] + b"h")
    stream = Detokenizer(tokenizer).stream(prompt)
    assert [stream.push([token_id]) for token_id in rest] == ["", "\u20ac", "h"]
    assert steps_of_decode_stream(tokenizer, prompt, rest) == ["", "hello\u20ac", "h"]
