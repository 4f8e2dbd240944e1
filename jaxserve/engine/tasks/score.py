"""Host: `score`: log-probabilities of continuations after their contexts.

Nothing is drawn, and logits are computed only where a continuation's token is the target. A context that several
continuations share is computed once.
"""

import math
from typing import Any

from jaxserve.core.outputs import ScoreOutput
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.inputs.per_prompt import named
from jaxserve.engine.inputs.request_adapters import read_lora_requests
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.tasks.prefill_only import run_prefill_only
from jaxserve.engine.tasks.score_inputs import ScorePair, read_pairs


def score(
    outputs: OutputProcessor, inputs: InputProcessor, pairs: Any, *, lora_request: Any = None, use_tqdm: bool = False
) -> list[ScoreOutput]:
    """Score each (context, continuation), both text or token ids (`read_pairs` cuts text), in their order.

    lora_request: one for all pairs, or a list with one or None per pair. Raises `RequestError` naming the pair before
    anything runs. Where logits are not finite, the log-probabilities are NaN.
    """
    read = read_pairs(inputs.tokenizer, pairs)
    requests: list[Request] = []
    for i, pair in enumerate(read):
        with named(f"pair {i}", "pairs"):
            ids, start = pair.context + pair.continuation, len(pair.context)
            requests.append(inputs.make_prefill_only(ids, logprobs_start=start))
    requests = inputs.with_adapters(requests, read_lora_requests(lora_request, len(read), "pair"))
    by_context: dict[tuple[object, tuple[int, ...]], list[int]] = {}
    for i, (pair, request) in enumerate(zip(read, requests, strict=True)):
        by_context.setdefault((request.cache_namespace, tuple(pair.context)), []).append(i)
    groups = [([requests[i] for i in members], len(context)) for (_, context), members in by_context.items()]
    sequences = run_prefill_only(outputs, groups, noun="pair", title="Scoring", use_tqdm=use_tqdm)
    order = [i for members in by_context.values() for i in members]
    by_pair = dict(zip(order, sequences, strict=True))
    return [_output(pair, by_pair[i]) for i, pair in enumerate(read)]


def _output(pair: ScorePair, sequence: Sequence) -> ScoreOutput:
    assert sequence.prompt_logprobs is not None
    entries = [entry for entry in sequence.prompt_logprobs[len(pair.context) :] if entry is not None]
    if len(entries) != len(pair.continuation):
        raise RuntimeError(f"a sequence that was being scored has ended with {sequence.finish_reason!r}")
    logprobs = [entry.logprob for entry in entries]
    return ScoreOutput(
        token_ids=pair.continuation,
        token_logprobs=logprobs,
        logprob=math.fsum(logprobs),
        is_greedy=all(entry.rank == 1 and math.isfinite(entry.logprob) for entry in entries),
        num_context_tokens=len(pair.context),
        text=pair.text,
    )
