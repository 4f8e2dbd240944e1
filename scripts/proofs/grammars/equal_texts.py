"""Constrained texts in different ways of running them: the same tokens, and all of them in the form.

In float32. Buckets round differently in their last bits, so that now and then another token is drawn: such texts differ
from there on, and are in the form as well.
"""

import json
import re
from typing import Any

from scripts.proofs.helpers.laws import Law
from scripts.proofs.parity import read_goldens

MODEL = "smollm2-135m-instruct"
COMMON = {
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 256,
    "buckets": "16 256x16",
}
NUM_PROMPTS, MAX_PROMPT_LEN, MAX_TOKENS = 40, 200, 48
LEAST_EQUAL = 0.95
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
PERSONS = {"type": "array", "items": PERSON, "minItems": 3, "maxItems": 4}
PHRASE = "[A-Z][a-z]{1,9}( [a-z]{1,9}){12,18}\\."
CHOICE = ["yes", "no", "I do not know"]
FORMS = ({"json": PERSON}, {"regex": PHRASE}, {"choice": CHOICE}, {"json": PERSONS}, {"json_object": True})
NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 4}
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    # options of the engine, of the requests, and the count that shows that it has happened
    "n = 3": ({}, {"n": 3}, None),
    "preempted": ({"num_pages": 48}, {}, "preemptions"),
    "chunks of 7": ({"max_chunk_tokens": 7}, {}, None),
    "one at a time": ({"max_num_seqs": 1, "buckets": "1 256x1"}, {}, None),
    "prefixes cached": ({}, {}, "cached tokens"),
    "n-gram drafts": ({"speculative_config": NGRAM}, {}, None),
    "suffix drafts": ({"speculative_config": SUFFIX}, {}, None),
}


def equal_texts() -> list[Law]:
    from jaxserve import LLM, RequestError

    prompts, laws = prompts_of_goldens(), list[Law]()
    plain = LLM(MODEL, **COMMON)
    expected = {name: _texts(plain, prompts, t, {}) for name, t in (("greedy", 0.0), ("temperature 1", 1.0))}
    for way, (options, others, witness) in WAYS.items():
        llm = LLM(MODEL, **COMMON | options) if options else plain
        for sampler, temperature in (("greedy", 0.0), ("temperature 1", 1.0)):
            before = _counts(llm)
            found = _texts(llm, prompts, temperature, others)
            equal = sum(a[0] == b[0] for a, b in zip(found, expected[sampler], strict=True))
            bad = sum(not _is_in_form(i, text) for i, texts in enumerate(found) for text in texts)
            laws.append((f"{way}, {sampler}: equal texts of {len(prompts)}", equal, LEAST_EQUAL * len(prompts), None))
            laws.append((f"{way}, {sampler}: ended texts that are not in the form", bad, None, 0))
            if witness is not None:
                laws.append((f"{way}, {sampler}: {witness}", _counts(llm)[witness] - before[witness], 1, None))
    try:
        plain.beam_search(["x"], _beam_params(structured_outputs={"regex": "a"}))
    except RequestError as error:
        laws.append(("beam search refuses a form by its name", error.param == "structured_outputs", 1, None))
    return laws


def prompts_of_goldens() -> list[list[int]]:
    return [prompt[-MAX_PROMPT_LEN:] for prompt in read_goldens(MODEL)[0][:NUM_PROMPTS]]


def _texts(llm, prompts: list[list[int]], temperature: float, others: dict[str, Any]) -> list[list[tuple[str, bool]]]:
    """Of each prompt the texts of its samples, and whether they ended by themselves."""
    from jaxserve import SamplingParams

    params = [
        SamplingParams(
            temperature=temperature, seed=i, max_tokens=MAX_TOKENS, structured_outputs=FORMS[i % len(FORMS)], **others
        )
        for i in range(len(prompts))
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [[(text.text, text.finish_reason == "stop") for text in output.outputs] for output in outputs]


def _is_in_form(number: int, text: tuple[str, bool]) -> bool:
    from jsonschema import Draft202012Validator

    written, has_ended = text
    ((kind, form),) = FORMS[number % len(FORMS)].items()
    if not has_ended:
        return True
    if kind == "regex":
        return re.fullmatch(form, written) is not None
    if kind == "choice":
        return written in form
    try:
        value = json.loads(written)
    except ValueError:
        return False
    return Draft202012Validator(form if kind == "json" else {"type": "object"}).is_valid(value)


def _counts(llm) -> dict[str, int]:
    return {"preemptions": llm.stats.num_preemptions, "cached tokens": llm.stats.num_cached_tokens}


def _beam_params(**fields: Any):
    from jaxserve import BeamSearchParams

    return BeamSearchParams(beam_width=2, max_tokens=4, **fields)
