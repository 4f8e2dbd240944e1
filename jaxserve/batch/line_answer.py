"""Host: `answer_line`: computes the result of one batch line, or the error that it gets."""

import dataclasses
from typing import Any

import numpy as np

from jaxserve.batch.batch_lines import BatchLine
from jaxserve.batch.results_journal import result_line
from jaxserve.server.calls.embed_call import embed_call
from jaxserve.server.calls.generation_call import GenerationCall, chat_call, completion_call
from jaxserve.server.calls.responses_call import responses_call
from jaxserve.server.calls.running_call import RunningCall
from jaxserve.server.http.error_responses import ApiError, as_api_error, errors_name_field
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.openai.responses_api.responses_body import ResponsesBody
from jaxserve.server.server_state import ServerState, ServerStatus

SEED_BITS = 63


async def answer_line(state: ServerState, line: BatchLine, seed: int) -> tuple[dict[str, Any], int]:
    """The line of the results file, and the number of generated tokens. Raises only after the engine has died.

    seed: combined with the line's number to seed lines without a seed, so that a resumed batch gives the same results.
    """
    request_id = f"batch-{line.number}"
    try:
        body, num_tokens = await _answer(state, line, request_id, seed)
        return result_line(line, request_id, 200, body, None), num_tokens
    except Exception as error:
        if state.status is ServerStatus.READY and state.engine.health().is_dead:
            raise
        failure = as_api_error(error)
        body = failure.body()
        return result_line(line, request_id, failure.status, body, body["error"]), 0


async def _answer(state: ServerState, line: BatchLine, request_id: str, seed: int) -> tuple[dict[str, Any], int]:
    body = line.body
    if isinstance(body, ApiError):
        raise body
    record = AccessRecord(request_id, route="batch")
    with errors_name_field(body.prompt_field):
        if isinstance(body, EmbeddingBody):
            return await embed_call(state, body, record), 0
        if isinstance(body, ChatBody):
            call = await chat_call(state, body, request_id)
        elif isinstance(body, ResponsesBody):
            call = await responses_call(state, body, request_id)
        else:
            assert isinstance(body, CompletionBody)
            call = await completion_call(state, body, request_id)
        running = await RunningCall.start(state, _seeded(call, line.number, seed))
    try:
        return call.response.whole(await running.outputs(record)), call.response.usage.num_completion_tokens
    finally:
        running.abort()


def _seeded(call: GenerationCall, number: int, seed: int) -> GenerationCall:
    if call.params.seed is not None:
        return call
    drawn = np.random.SeedSequence([seed & (1 << SEED_BITS) - 1, number]).generate_state(1, np.uint64)[0]
    return dataclasses.replace(call, params=dataclasses.replace(call.params, seed=int(drawn) >> 64 - SEED_BITS))
