"""Host: `constraint_vocabulary`: what grammars need to know of a model's tokenizer."""

from jaxserve.constrained.grammar_vocabulary import GrammarVocabulary, usable_bytes
from jaxserve.text.tokenizer import Tokenizer


def constraint_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> GrammarVocabulary:
    """vocab_size: columns of the model's logits. Ids of the tokenizer beyond them are left out, columns beyond the
    tokenizer's ids are never allowed, nor are special tokens. Takes a second for a vocabulary of 262,144."""
    token_bytes = usable_bytes(tokenizer.token_bytes, tokenizer.special_ids)[:vocab_size]
    return GrammarVocabulary(token_bytes, vocab_size, tokenizer.backend.to_str())
