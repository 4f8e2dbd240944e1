"""Host: `splits_name`: the name by which a GGUF file says how a byte-level tokenizer splits text."""

from dataclasses import replace
from typing import Any

from jaxserve.text.pre_tokenizers import BY_NAME, DIGIT, GPT2, PreTokenizer


class NoVocabulary(Exception):
    """Why a tokenizer has no form in GGUF."""


def splits_name(state: dict[str, Any]) -> str:
    """A name in `pre_tokenizers.BY_NAME`. state: the content of a tokenizer.json.

    Raises `NoVocabulary` where none of them says the same.
    """
    normalizer = state["normalizer"]
    if normalizer not in (None, {"type": "NFC"}):
        raise NoVocabulary(f"its normalizer {normalizer['type']} has no name in GGUF")
    steps = _steps(state["pre_tokenizer"])
    if not steps or steps[-1]["type"] != "ByteLevel":
        raise NoVocabulary("it splits text in a way that has no name in GGUF")
    splits = tuple(split for step in steps for split in _splits(step))
    rule = PreTokenizer(splits, bool(state["model"]["ignore_merges"]), is_nfc=normalizer is not None)
    for name, known in BY_NAME.items():
        if replace(known, adds_bos=False) == rule:
            return name
    raise NoVocabulary("it splits text by expressions that have no name in GGUF")


def _steps(spec: dict[str, Any] | None) -> list[dict[str, Any]]:
    if spec is None:
        return []
    return [step for part in spec["pretokenizers"] for step in _steps(part)] if spec["type"] == "Sequence" else [spec]


def _splits(step: dict[str, Any]) -> tuple[str, ...]:
    """The expressions whose matches are pieces."""
    match step:
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False}:
            return (pattern,)
        case {"type": "Digits", "individual_digits": True}:
            return (DIGIT,)
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": bool(is_split)}:
            return (GPT2,) if is_split else ()
        case _:
            raise NoVocabulary(f"its step {step['type']} has no name in GGUF")
