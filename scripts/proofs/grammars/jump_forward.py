"""What tokens save that a grammar forces: with log-probabilities each of them is drawn, without they are appended.

    drawn       ... t  f1  f2  f3  g     a step each
    chunk       ... t  f1+f2+f3  g       k forced tokens save k - 1 steps: while they come to be known, the step that
                                         computes t, and that would draw the first of them, is running

They are computed in chunks by all rows, or where such steps pay on this machine, which the engine measures. The steps
of each text are counted: a batch has as many as its longest text, mostly one of free words up to the limit of tokens.
Where whitespace is free between the parts of JSON, few tokens are forced.
"""

from typing import Any

from scripts.proofs.grammars.equal_texts import MODEL
from scripts.proofs.grammars.schema_set import schema_set
from scripts.proofs.grammars.validity import OPTIONS, accepted, prompt_of, verdict
from scripts.proofs.helpers.laws import Law

NUM_SCHEMAS, MAX_TOKENS = 100, 96
LEAST_EQUAL, LEAST_SAVED = 0.99, 0.9
SPACINGS = {"free whitespace": ({}, None), "no whitespace": ({"disable_any_whitespace": True}, 0.95)}
"""Fields of the form, and the most steps over those where each token is drawn."""


def jump_forward() -> list[Law]:
    from jaxserve import LLM

    llm = LLM(MODEL, **OPTIONS, dtype="float32")
    schemas = dict(list(schema_set().items())[:: 390 // NUM_SCHEMAS])
    return [law for spacing in SPACINGS for law in _laws(llm, schemas, spacing)]


def _laws(llm: Any, schemas: dict[str, Any], spacing: str) -> list[Law]:
    from jaxserve.scheduler.costs.forced_chunks import ForcedChunks

    fields, most = SPACINGS[spacing]
    forms = accepted(llm, schemas, **fields)
    always: Any = ForcedChunks()
    always.choose = lambda *args, **sizes: True
    drawn, drawn_steps, _ = _run(llm, schemas, forms, ForcedChunks(), logprobs=0)
    laws: list[Law] = []
    for way, chunks in (("always chunks", always), ("chunks that pay", ForcedChunks())):
        outputs, num_steps, share_valid = _run(llm, schemas, forms, chunks, logprobs=None)
        # Texts of as many tokens may be shorter where tokens are not canonical: they are compared as far as both go.
        pairs = [(a.text, b.text) for a, b in zip(drawn, outputs, strict=True)]
        equal = sum(a[: len(b)] == b[: len(a)] for a, b in pairs) / len(forms)
        laws += [
            (f"{spacing}, {way}: greedy texts equal to those whose tokens are all drawn, share", equal, LEAST_EQUAL,
             None),
            (f"{spacing}, {way}: steps of all texts over those then", num_steps / drawn_steps, None,
             most if chunks is always else None),
            (f"{spacing}, {way}: valid of the texts that ended", share_valid, 1, None),
        ]  # fmt: skip
        if chunks is always:
            saved = (drawn_steps - num_steps) / _most_saved(llm, forms, outputs)
            laws.append((f"{spacing}, {way}: steps saved, of those that forced tokens allow", saved, LEAST_SAVED, None))
    return laws


def _run(
    llm: Any, schemas: dict[str, Any], forms: dict[str, Any], chunks: Any, *, logprobs: int | None
) -> tuple[list[Any], int, float]:
    """Samples, the number of their steps, and how many of the texts that ended are valid."""
    from jaxserve import SamplingParams
    from jaxserve.engine.loop.step_stats import StepLog

    params = [
        SamplingParams(temperature=0, max_tokens=MAX_TOKENS, structured_outputs=form, logprobs=logprobs)
        for form in forms.values()
    ]
    llm.parts.engine.scheduler.state.forced_chunks = chunks
    llm.parts.engine.observer = records = StepLog()
    prompts = [prompt_of(schemas[name]) for name in forms]
    outputs = [output.outputs[0] for output in llm.generate(prompts, params, use_tqdm=False)]
    llm.parts.engine.observer = None
    found = [verdict(schemas[name], o.text, o.finish_reason) for name, o in zip(forms, outputs, strict=True)]
    num_ended = len(found) - found.count("truncated")
    return outputs, sum(record.num_rows for record in records.records), found.count("valid") / num_ended


def _most_saved(llm: Any, forms: dict[str, Any], outputs: list[Any]) -> int:
    """Steps less than tokens that these texts can have: of each run of forced tokens all but one."""
    from jaxserve.constrained.canonical_tokenizer import CanonicalTokenizer
    from jaxserve.constrained.compile_grammar import compile_grammar
    from jaxserve.constrained.token_slices import sliced
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary

    found = constraint_vocabulary(llm.parts.tokenizer, llm.parts.model.vocab_size)
    tokenizer = sliced(CanonicalTokenizer(found.token_bytes, found.vocab_size, found.tokenizer_json))
    total = 0
    for form, output in zip(forms.values(), outputs, strict=True):
        matcher, tokens = compile_grammar(tokenizer, form).deep_copy(), list(output.token_ids)
        while tokens and matcher.consume_token(tokens.pop(0)) and not matcher.is_stopped():
            forced = matcher.compute_ff_tokens()[: len(tokens)]
            total += max(0, len(forced) - 1)
            matcher.consume_tokens(forced)
            tokens = tokens[len(forced) :]
    return total
