"""What tokens save that a grammar forces: with log-probabilities each of them is drawn, without they are appended."""

from scripts.proofs.grammars.equal_texts import MODEL
from scripts.proofs.grammars.schema_set import schema_set
from scripts.proofs.grammars.validity import OPTIONS, accepted, prompt_of, verdict
from scripts.proofs.helpers.laws import Law

NUM_SCHEMAS, MAX_TOKENS = 100, 96
LEAST_EQUAL = 0.99
MOST_STEPS = 0.95


def jump_forward() -> list[Law]:
    from jaxserve import LLM, SamplingParams
    from jaxserve.engine.loop.step_stats import StepLog

    llm = LLM(MODEL, **OPTIONS, dtype="float32")
    schemas = dict(list(schema_set().items())[:: 390 // NUM_SCHEMAS])
    forms = accepted(llm, schemas)
    prompts = [prompt_of(schemas[name]) for name in forms]
    texts, num_steps, num_valid, num_ended = [], [], [], []
    for logprobs in (0, None):
        params = [
            SamplingParams(temperature=0, max_tokens=MAX_TOKENS, structured_outputs=form, logprobs=logprobs)
            for form in forms.values()
        ]
        llm.parts.engine.observer = records = StepLog()
        outputs = [output.outputs[0] for output in llm.generate(prompts, params, use_tqdm=False)]
        llm.parts.engine.observer = None
        texts.append([output.text for output in outputs])
        num_steps.append(len(records.records))
        found = [verdict(schemas[name], o.text, o.finish_reason) for name, o in zip(forms, outputs, strict=True)]
        num_valid.append(found.count("valid"))
        num_ended.append(len(found) - found.count("truncated"))
    # Texts of as many tokens may be shorter where tokens are not canonical: they are compared as far as both go.
    equal = sum(a[: len(b)] == b[: len(a)] for a, b in zip(*texts, strict=True)) / len(forms)
    return [
        ("greedy texts equal with and without jump-forward, share", equal, LEAST_EQUAL, None),
        ("steps with jump-forward over those without", num_steps[1] / num_steps[0], None, MOST_STEPS),
        ("valid of the texts that ended, with", num_valid[1] / num_ended[1], 1, None),
        ("valid of the texts that ended, without", num_valid[0] / num_ended[0], 1, None),
    ]
