"""Whether masks are what brute force finds, over a whole vocabulary, and how long they take."""

import time
from collections.abc import Iterator
from random import Random

import numpy as np

from scripts.proofs.grammars.laws import Law

NUM_PREFIXES = {"smollm2-135m-instruct": 300, "gemma-3-270m": 100}
MAX_WALK = 12
ANOTHER = ("regex", "{2,5}", "{2,6}")  # the control's constraint, and what is changed in its language


def brute_force(model: str) -> list[Law]:
    """Along random texts of several forms: a token is allowed if and only if its bytes can continue the text, by an
    oracle that derives regular expressions byte by byte. The control compares with another language."""
    from jaxserve.constrained.matchers import Matchers
    from jaxserve.core.options.structured_outputs import StructuredOutputsParams
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
    from scripts.benchmarks.host.empty_model_engine import tokenizer_of
    from tests.jaxserve.constrained.test_masks import CONSTRAINTS

    tokenizer, eos_id = tokenizer_of(model), -1
    vocabulary = constraint_vocabulary(tokenizer, tokenizer.vocab_size)
    eos_id = tokenizer.eos_ids[0]
    matchers, counts, wrong, noticed = Matchers(vocabulary), 0, 0, 0
    for seed in range(1000):
        for name, (values, pattern) in CONSTRAINTS.items():
            for text, mask in _walk(matchers, StructuredOutputsParams(**values), vocabulary.token_bytes, eos_id, seed):
                if counts == NUM_PREFIXES[model]:
                    matchers.close()
                    return [
                        (f"{model}: prefixes x {tokenizer.vocab_size} tokens", counts, NUM_PREFIXES[model], None),
                        (f"{model}: masks that differ from brute force", wrong, None, 0),
                        (f"{model}: masks that differ from those of another language (control)", noticed, 1, None),
                    ]
                counts += 1
                wrong += not np.array_equal(mask, _expected(pattern, text, vocabulary, eos_id))
                if name == ANOTHER[0]:
                    other = pattern.replace(*ANOTHER[1:])
                    noticed += not np.array_equal(mask, _expected(other, text, vocabulary, eos_id))
    raise AssertionError("too few prefixes")


def _walk(matchers, form, token_bytes, eos_id: int, seed: int) -> Iterator[tuple[bytes, np.ndarray]]:
    """The text before and the tokens that are allowed, bool[V], along a random text."""
    matchers.start(0, form, (eos_id,))
    text, new = b"", ()
    for _ in range(MAX_WALK):
        found = matchers.advance({0: new})[0]
        text += b"".join(token_bytes[i] for i in found.forced)
        mask = bits(found.mask)[: len(token_bytes)]
        yield text, mask
        legal = np.flatnonzero(mask)
        legal = legal[legal != eos_id].tolist()
        if not legal:
            break
        new = (Random(f"{seed} {text!r}").choice(legal),)
        text += token_bytes[new[0]]
    matchers.drop(0)


def _expected(pattern: str, text: bytes, vocabulary, eos_id: int) -> np.ndarray:
    from tests.jaxserve.constrained.viable_prefixes import NOTHING, after_all, is_complete, language

    state, found = after_all(language(pattern), text), np.zeros(len(vocabulary.token_bytes), bool)
    first = {byte: after_all(state, bytes([byte])) != NOTHING for byte in range(256)}
    for i, data in enumerate(vocabulary.token_bytes):
        if data and first[data[0]]:
            found[i] = after_all(state, data) != NOTHING
    found[eos_id] = is_complete(state)
    return found


def bits(mask: np.ndarray) -> np.ndarray:
    return np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)


def mask_times(model: str, names: list[str], texts: list[list[int]]) -> list[Law]:
    """Of one mask, as a grammar process computes it, along texts that the model wrote for schemas of these names."""
    from llguidance import LLTokenizer

    from jaxserve.constrained.canonical_tokenizer import CanonicalTokenizer
    from jaxserve.constrained.compile_grammar import compile_grammar
    from jaxserve.core.options.structured_outputs import StructuredOutputsParams
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
    from scripts.benchmarks.host.empty_model_engine import tokenizer_of
    from scripts.proofs.grammars.schema_set import schema_set

    tokenizer, schemas = tokenizer_of(model), schema_set()
    vocabulary = constraint_vocabulary(tokenizer, tokenizer.vocab_size)
    mapped = LLTokenizer(CanonicalTokenizer(vocabulary.token_bytes, vocabulary.vocab_size, None))
    took_us = list[float]()
    for name, text in zip(names, texts, strict=True):
        matcher = compile_grammar(mapped, StructuredOutputsParams(json=schemas[name])).deep_copy()
        for token in text:
            started = time.perf_counter()
            matcher.compute_bitmask()
            took_us.append(1e6 * (time.perf_counter() - started))
            if token in tokenizer.eos_ids or not matcher.consume_token(token):
                break
    p50, p99 = np.percentile(took_us, [50, 99])
    return [
        (f"{model}: masks", len(took_us), 1000, None),
        (f"{model}: time of a mask in µs, p50", float(p50), None, 50),
        (f"{model}: time of a mask in µs, p99", float(p99), None, 500),
    ]
