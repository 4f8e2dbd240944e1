"""How far rows advance in passes with drafts, counted by their texts and by what was accepted."""

from typing import NamedTuple

from scripts.proofs.helpers.draft_speeds import counted_passes

NUM_TOKENS = 64


class Counts(NamedTuple):
    """tokens_a_pass: by the lengths of texts. agreement: of this and of what the engine's counts of acceptance by
    position predict, the smaller over the larger one; passes without a draft advance a text by one token."""

    tokens_a_pass: float
    agreement: float


def drafts_of(llm, prompts: list[list[int]]) -> Counts:
    """Of greedy texts, one after the other, with drafts in every pass."""
    from jaxserve import SamplingParams
    from jaxserve.engine.loop.step_stats import StepLog
    from jaxserve.engine.serving.engine_metrics import DraftMetrics
    from tests.support.drafting import always

    log, counts = StepLog(), DraftMetrics()
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
    llm.parts.engine.observer, num_tokens = log, 0
    with counted_passes(always(llm)) as passes:
        for prompt in prompts:
            (output,) = llm.generate([prompt], params, use_tqdm=False)
            num_tokens += len(output.outputs[0].token_ids) - 1  # the first comes from the prompt's pass
    for record in log.records:
        if record.drafts is not None:
            counts.observe(record.drafts)
    found = num_tokens / sum(passes)
    predicted = 1 + sum(counts.accepted_by_position.values()) / sum(passes)
    return Counts(found, min(found, predicted) / max(found, predicted))
