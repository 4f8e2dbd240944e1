"""Host: `embed`: one vector per prompt, pooled from its hidden states after the final norm."""

from typing import Any

import numpy as np

from jaxserve.core.errors import LateError, RequestError
from jaxserve.core.outputs import EmbeddingOutput, EmbeddingRequestOutput, RequestMetrics
from jaxserve.core.row_layout import POOLING
from jaxserve.core.sequence import Sequence
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.inputs.prompt import read_prompts
from jaxserve.engine.inputs.request_adapters import read_lora_requests
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.tasks.prefill_only import check_adapter, run_prefill_only


def embed(
    outputs: OutputProcessor,
    inputs: InputProcessor,
    prompts: Any,
    *,
    pooling: str = "mean",
    normalize: bool = True,
    lora_request: Any = None,
    use_tqdm: bool = False,
) -> list[EmbeddingRequestOutput]:
    """One vector per prompt, in order: the mean over its tokens ("mean") or its last token's hidden state ("last").

    prompts, lora_request: as `LLM.generate` takes them. normalize: to length 1. Raises `RequestError` naming the prompt
    before anything runs. Where hidden states are not finite, the vector is not finite either.
    """
    check_pooling(pooling)
    read = read_prompts(prompts)
    requests = inputs.requests(read, None, lora_requests=read_lora_requests(lora_request, len(read)), pooling=pooling)
    groups = [([request], len(request.prompt_token_ids)) for request in requests]
    sequences = run_prefill_only(outputs, groups, noun="prompt", title="Embedding", use_tqdm=use_tqdm)
    return [embedding_of(sequence, normalize) for sequence in sequences]


def check_pooling(pooling: Any) -> None:
    """Raise `RequestError` for a pooling that is not known."""
    if not isinstance(pooling, str) or pooling not in POOLING:
        known = ", ".join(repr(name) for name in POOLING if name is not None)
        raise RequestError(f"pooling={pooling!r} must be one of {known}", "pooling")


def embedding_of(sequence: Sequence, normalize: bool) -> EmbeddingRequestOutput:
    """The vector of a sequence that has ended; raises `LateError` where it ended by a deadline, and `RequestError`
    where its adapter could not be read."""
    request, vector = sequence.request, sequence.pooled
    check_adapter(sequence)
    if sequence.finish_reason == "timeout":
        raise LateError("the time of a prompt was up before its embedding was computed")
    if vector is None or sequence.finish_reason != "length":
        raise RuntimeError(f"a sequence that was being embedded has ended with {sequence.finish_reason!r}")
    if request.pooling == "mean":
        vector = vector / sequence.prompt_len
    if normalize:
        vector = vector / max(float(np.linalg.norm(vector)), np.finfo(np.float64).tiny)
    return EmbeddingRequestOutput(
        request_id=request.request_id,
        outputs=EmbeddingOutput(vector.tolist()),
        prompt_token_ids=request.prompt_token_ids.tolist(),
        num_cached_tokens=sequence.num_cached_tokens or 0,
        metrics=RequestMetrics(request.arrival_s, sequence.started_s),
    )
