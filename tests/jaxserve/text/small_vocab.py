"""GGUF metadata of two small vocabularies: a byte-level and a SentencePiece one."""

from jaxserve.text.token_bytes import byte_alphabet

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPACE = "\u2581"


def byte_level(pre="gpt-2", **extra):
    """Ids 0-255 are the bytes themselves, then the merges' results, then <|end|> and <|im_end|>."""
    alphabet = byte_alphabet()
    letters = [alphabet[byte] for byte in range(256)]
    merges = ["h e", "l l", "he ll", "hell o", f"{letters[0x20]} hello"]
    pieces = [*letters, *(merge.replace(" ", "") for merge in merges), "<|end|>", "<|im_end|>", "<tool>"]
    kinds = [NORMAL] * (256 + len(merges)) + [CONTROL, CONTROL, USER_DEFINED]
    return _metadata("gpt2", pieces, kinds, extra | {"pre": pre, "merges": merges})


def sentencepiece(**extra):
    """<unk> <s> </s>, 256 byte tokens from id 3, then letters and words with their scores, and a run of two spaces."""
    words = {SPACE: -9, "h": -8, "e": -7, "l": -6, "o": -5, "he": -1, "ll": -2, "hell": -3, "hello": -4}
    words |= {SPACE + "hello": -4.5, "lo": -4.2, SPACE + "h": -20}
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words, "  "]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(words), USER_DEFINED]
    scores = [0.0] * 259 + [float(score) for score in words.values()] + [-1000.0]
    ids = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    return _metadata("llama", pieces, kinds, ids | extra | {"scores": scores})


def _metadata(model, pieces, kinds, extra):
    fields = {"model": model, "tokens": pieces, "token_type": kinds, **extra}
    return {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
