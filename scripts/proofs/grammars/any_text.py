"""A form that any text has leaves texts as they are.

A random token is found by its place in the sum of all probabilities, of which a form takes those of special tokens and
of bytes that are not UTF-8. So random texts are those drawn among the tokens that a text may go on with, up to a token
that ends within a character, after which a form allows others.
"""

import codecs
from typing import Any

from scripts.proofs.grammars.equal_texts import COMMON, LEAST_EQUAL, MAX_TOKENS, MODEL, prompts_of_goldens
from scripts.proofs.helpers.laws import Law

FORM = {"regex": "(?s:.*)"}


def any_text() -> list[Law]:
    from jaxserve import LLM
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary

    llm, prompts = LLM(MODEL, **COMMON), prompts_of_goldens()
    tokenizer = llm.parts.tokenizer
    unfinished = [_unfinished(token) for token in constraint_vocabulary(tokenizer, tokenizer.vocab_size).token_bytes]
    allowed = sorted({*tokenizer.eos_ids, *(token for token, rest in enumerate(unfinished) if rest is not None)})

    def num_equal(temperature: float, **fields: Any) -> int:
        """Texts of the form that equal those with these fields."""
        found = _texts(llm, prompts, temperature, structured_outputs=FORM)
        equal = 0
        for text, expected in zip(found, _texts(llm, prompts, temperature, **fields), strict=True):
            whole = next((i for i, token in enumerate(expected) if unfinished[token]), len(expected))
            equal += text[:whole] == expected[:whole]
        return equal

    least = LEAST_EQUAL * len(prompts)
    return [
        (f"greedy: texts equal to those without a form, of {len(prompts)}", num_equal(0.0), least, None),
        (f"temperature 1: texts equal to those of the tokens that a text may go on with, of {len(prompts)}",
         num_equal(1.0, allowed_token_ids=allowed), least, None),
        (f"temperature 1: texts equal to those without a form, of {len(prompts)}", num_equal(1.0), None, None),
    ]  # fmt: skip


def _texts(llm: Any, prompts: list[list[int]], temperature: float, **fields: Any) -> list[list[int]]:
    from jaxserve import SamplingParams

    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=MAX_TOKENS, **fields) for i in range(len(prompts))
    ]
    return [list(output.outputs[0].token_ids) for output in llm.generate(prompts, params, use_tqdm=False)]


def _unfinished(token: bytes) -> int | None:
    """Bytes behind the last whole character of a token; None where no text goes on with it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(token)
    except UnicodeDecodeError:
        return None
    return len(decoder.getstate()[0]) if token else None
