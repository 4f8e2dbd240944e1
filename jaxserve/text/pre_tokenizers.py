"""Host: pre-tokenizers of byte-level vocabularies, which split text before merging, by their names in GGUF files.

The regular expressions are those of the tokenizer.json files that the models were published with.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxserve.core.errors import ConfigError

if TYPE_CHECKING:
    import tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGIT = r"\p{N}"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
LLAMA3 = rf"{_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
QWEN2 = rf"{_ENDINGS}|{_WORD}|\p{{N}}|{_MARKS}|{_SPACES}"

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_WORDS = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*")
_MARKS_OR_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
TEKKEN = rf"{_CASED_WORDS[0]}|{_CASED_WORDS[1]}|\p{{N}}|{_MARKS_OR_SLASHES}|{_SPACES}"
GPT4O = rf"{'|'.join(f'{word}{_ENDINGS}?' for word in _CASED_WORDS)}|\p{{N}}{{1,3}}|{_MARKS_OR_SLASHES}|{_SPACES}"

DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
)
PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"
THREE_DIGITS = r"[0-9][0-9][0-9]"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One splitting rule.

    splits: regular expressions, applied one after another; each match becomes a piece. ignore_merges: a piece that is
    in the vocabulary becomes one token without merging. is_nfc: text is normalized to NFC first. adds_bos: whether a
    text begins with the bos token, where the file does not specify it.
    """

    splits: tuple[str, ...]
    ignore_merges: bool = False
    is_nfc: bool = False
    adds_bos: bool = False

    def build(self) -> "tokenizers.pre_tokenizers.PreTokenizer":
        from tokenizers import Regex, pre_tokenizers

        splits = [pre_tokenizers.Split(Regex(split), behavior="isolated") for split in self.splits]
        return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_TABLE = {
    PreTokenizer((GPT2,)): "gpt-2 phi-2 mpt olmo jais roberta-bpe",
    PreTokenizer((DIGIT, GPT2)): "smollm starcoder refact command-r codeshell exaone minerva-7b",
    PreTokenizer((LLAMA3,), ignore_merges=True, adds_bos=True): "llama-bpe llama3 llama-v3 falcon3 pixtral",
    PreTokenizer((LLAMA3,)): "dbrx smaug-bpe",
    PreTokenizer((QWEN2,), is_nfc=True): "qwen2",
    PreTokenizer((QWEN2,)): "deepseek-r1-qwen stablelm2 megrez",
    PreTokenizer((GPT4O,)): "gpt-4o llama4",
    PreTokenizer((TEKKEN,), ignore_merges=True, adds_bos=True): "tekken",
    PreTokenizer(DEEPSEEK3): "deepseek-v3 hunyuan-dense",
    PreTokenizer((PUNCTUATION, GPT2, r"\p{N}+", THREE_DIGITS)): "default",
}
BY_NAME = {name: pre_tokenizer for pre_tokenizer, names in _TABLE.items() for name in names.split()}


def pre_tokenizer_named(name: str) -> PreTokenizer:
    """The rule named by `tokenizer.ggml.pre`. Unknown names are refused: a wrong rule silently gives other ids."""
    if name not in BY_NAME:
        raise ConfigError(
            f"the GGUF file names the unknown pre-tokenizer {name!r} (known: {', '.join(sorted(BY_NAME))}); set "
            "tokenizer to the folder of the original model",
            "tokenizer",
        )
    return BY_NAME[name]
