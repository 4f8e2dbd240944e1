"""What tokens save that a grammar forces: with log-probabilities each of them is drawn, without they are appended.

They are computed in chunks by all rows, or where such steps pay on this machine, which the engine measures. The steps
of each text are counted: a batch has as many as its longest text, mostly one of free words up to the limit of tokens.
"""

from typing import Any

from scripts.proofs.grammars.equal_texts import MODEL
from scripts.proofs.grammars.schema_set import schema_set
from scripts.proofs.grammars.validity import OPTIONS, accepted, prompt_of, verdict
from scripts.proofs.helpers.laws import Law

NUM_SCHEMAS, MAX_TOKENS = 100, 96
LEAST_EQUAL = 0.99
MOST_STEPS = 0.95


def jump_forward() -> list[Law]:
    from jaxserve import LLM
    from jaxserve.scheduler.costs.forced_chunks import ForcedChunks

    llm = LLM(MODEL, **OPTIONS, dtype="float32")
    schemas = dict(list(schema_set().items())[:: 390 // NUM_SCHEMAS])
    forms = accepted(llm, schemas)
    always: Any = ForcedChunks()
    always.choose = lambda *args, **sizes: True
    drawn, drawn_steps, _ = _run(llm, schemas, forms, ForcedChunks(), logprobs=0)
    laws: list[Law] = []
    for way, chunks, most in (("always chunks", always, MOST_STEPS), ("chunks that pay", ForcedChunks(), None)):
        texts, num_steps, share_valid = _run(llm, schemas, forms, chunks, logprobs=None)
        # Texts of as many tokens may be shorter where tokens are not canonical: they are compared as far as both go.
        equal = sum(a[: len(b)] == b[: len(a)] for a, b in zip(drawn, texts, strict=True)) / len(forms)
        laws += [
            (f"{way}: greedy texts equal to those whose tokens are all drawn, share", equal, LEAST_EQUAL, None),
            (f"{way}: steps of all texts over those then", num_steps / drawn_steps, None, most),
            (f"{way}: valid of the texts that ended", share_valid, 1, None),
        ]
    return laws


def _run(
    llm: Any, schemas: dict[str, Any], forms: dict[str, Any], chunks: Any, *, logprobs: int | None
) -> tuple[list[str], int, float]:
    """Texts, the number of their steps, and how many of the texts that ended are valid."""
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
    num_steps = sum(record.num_rows for record in records.records)
    return [output.text for output in outputs], num_steps, found.count("valid") / num_ended
