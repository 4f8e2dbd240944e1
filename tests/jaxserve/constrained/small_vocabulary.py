"""A vocabulary of all bytes and some words, small enough to try every token."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from jaxserve.constrained.grammar_vocabulary import GrammarVocabulary
from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
from jaxserve.text.token_bytes import byte_alphabet
from jaxserve.text.tokenizer import Tokenizer as TextTokenizer

WORDS = ('{"', '":', '",', '"}', "ab", "bb", "abb", "tr", "true", "order", "orderId", "Id", "é", "12", ", ", "\n\n")
SPECIAL = ("<s>", "</s>", "<end>")
PADDED_SIZE = 331


def tokenizer() -> TextTokenizer:
    """Byte-level BPE: ids 0 to 255 are bytes, WORDS and their beginnings follow, then SPECIAL."""
    letter = byte_alphabet()
    vocab = {letter[byte]: byte for byte in range(256)}
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        spelled = "".join(letter[byte] for byte in word.encode())
        for end in range(2, len(spelled) + 1):
            if spelled[:end] not in vocab:
                vocab[spelled[:end]] = len(vocab)
                merges.append((spelled[: end - 1], spelled[end - 1]))
    backend = Tokenizer(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return TextTokenizer(backend, eos_ids=[backend.token_to_id("</s>")])


TOKENIZER = tokenizer()
EOS_IDS = tuple(TOKENIZER.backend.token_to_id(text) for text in ("</s>", "<end>"))


def vocabulary() -> GrammarVocabulary:
    return constraint_vocabulary(TOKENIZER, PADDED_SIZE)
