"""Whether masks are what brute force finds, over a whole vocabulary, and how long they take."""

import time
from itertools import count
from random import Random

import numpy as np

from scripts.proofs.helpers.laws import Law

NUM_PREFIXES = {"smollm2-135m-instruct": 300, "gemma-3-270m": 100}
MAX_WALK = 12
ANOTHER = ("regex", "ab|", "")  # the control's constraint, and what is changed in its language


def brute_force(model: str) -> list[Law]:
    """Along random texts of several forms: a token is allowed if and only if its bytes can continue the text, by an
    oracle that derives regular expressions byte by byte. The control compares with another language."""
    from jaxserve.constrained.matchers import Matchers
    from jaxserve.core.options.structured_outputs import StructuredOutputsParams
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
    from scripts.benchmarks.host.empty_model_engine import tokenizer_of
    from tests.jaxserve.constrained.random_walks import expected, tokens_of, walk
    from tests.jaxserve.constrained.test_masks import CONSTRAINTS
    from tests.jaxserve.constrained.viable_prefixes import TokenTree

    tokenizer, num_wrong, noticed, texts = tokenizer_of(model), 0, 0, list[bytes]()
    vocabulary, eos_ids = constraint_vocabulary(tokenizer, tokenizer.vocab_size), tokenizer.eos_ids[:1]
    token_bytes, tree, matchers = vocabulary.token_bytes, TokenTree(vocabulary.token_bytes), Matchers(vocabulary)
    cases = ((seed, name, *CONSTRAINTS[name]) for seed in count() for name in CONSTRAINTS)
    while len(texts) < NUM_PREFIXES[model]:
        seed, name, values, pattern = next(cases)
        form = StructuredOutputsParams(**values)
        for text, found in walk(matchers, form, token_bytes, eos_ids, Random(seed), MAX_WALK):
            legal = tokens_of(found.mask)
            num_wrong += legal != expected(pattern, text, tree, eos_ids)
            if name == ANOTHER[0]:
                noticed += legal != expected(pattern.replace(*ANOTHER[1:]), text, tree, eos_ids)
            texts.append(text)
    matchers.close()
    return [
        (f"prefixes x {tokenizer.vocab_size:,} tokens", len(texts), NUM_PREFIXES[model], None),
        ("masks that differ from brute force", num_wrong, None, 0),
        ("masks that differ from those of another language (control)", noticed, 1, None),
    ]


def bits(mask: np.ndarray) -> np.ndarray:
    return np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)


def mask_times(model: str, names: list[str], texts: list[list[int]]) -> list[Law]:
    """CPU time of one mask, as a grammar process computes it, along texts that the model wrote for schemas of these
    names."""
    from jaxserve.constrained.canonical_tokenizer import CanonicalTokenizer
    from jaxserve.constrained.compile_grammar import compile_grammar
    from jaxserve.constrained.token_slices import sliced
    from jaxserve.core.options.structured_outputs import StructuredOutputsParams
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
    from scripts.benchmarks.host.empty_model_engine import tokenizer_of
    from scripts.proofs.grammars.schema_set import schema_set

    tokenizer, schemas = tokenizer_of(model), schema_set()
    vocabulary = constraint_vocabulary(tokenizer, tokenizer.vocab_size)
    mapped = sliced(CanonicalTokenizer(vocabulary.token_bytes, vocabulary.vocab_size, None))
    took_us = list[float]()
    for name, text in zip(names, texts, strict=True):
        matcher = compile_grammar(mapped, StructuredOutputsParams(json=schemas[name])).deep_copy()
        for token in text:
            started = time.thread_time()
            matcher.compute_bitmask()
            took_us.append(1e6 * (time.thread_time() - started))
            if token in tokenizer.eos_ids or not matcher.consume_token(token):
                break
    p50, p99 = np.percentile(took_us, [50, 99])
    return [
        ("masks", len(took_us), 1000, None),
        ("CPU time of a mask in µs, p50", float(p50), None, 50),
        ("CPU time of a mask in µs, p99", float(p99), None, 500),
    ]
