"""Host: one line of a batch answered: by the engine, or by what is wrong with it."""

import dataclasses
from typing import Any

import numpy as np

from jaxserve.batch.batch_lines import BatchLine
from jaxserve.batch.results_journal import result
from jaxserve.server.calls.generation_call import GenerationCall, chat_call, completion_call
from jaxserve.server.calls.running_call import RunningCall
from jaxserve.server.http.error_responses import ApiError, as_api_error, blaming
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.openai.responses.embedding_response import embedding_answer
from jaxserve.server.server_state import ServerState, ServerStatus

SEED_BITS = 63


async def answer_line(service: ServerState, line: BatchLine, seed: int) -> tuple[dict[str, Any], int]:
    """The result to be written, and how many tokens were generated. Raises only when the engine has died.

    seed: of lines that bring none, each of which gets another: one that depends on its number alone, so that a batch
    says the same when it is resumed.
    """
    request_id = f"batch-{line.number}"
    try:
        body, num_tokens = await _answer(service, line, request_id, seed)
        return result(line, request_id, 200, body, None), num_tokens
    except Exception as error:
        if service.state is ServerStatus.READY and service.llm.health().is_dead:
            raise
        failure = as_api_error(error)
        told = failure.body()
        return result(line, request_id, failure.status, told, told["error"]), 0


async def _answer(service: ServerState, line: BatchLine, request_id: str, seed: int) -> tuple[dict[str, Any], int]:
    body = line.body
    if isinstance(body, ApiError):
        raise body
    served = AccessRecord(request_id, route="batch")
    with blaming(body.prompt_field):
        if isinstance(body, EmbeddingBody):
            return await embedding_answer(service, body, served), 0
        if isinstance(body, ChatBody):
            call = await chat_call(service, body, request_id)
        else:
            assert isinstance(body, CompletionBody)
            call = await completion_call(service, body, request_id)
        work = await RunningCall.begin(service, _seeded(call, line.number, seed))
    try:
        return call.answer.whole(await work.whole(served)), call.answer.usage.num_completion_tokens
    finally:
        work.abort()


def _seeded(call: GenerationCall, number: int, seed: int) -> GenerationCall:
    if call.params.seed is not None:
        return call
    drawn = np.random.SeedSequence([seed & (1 << SEED_BITS) - 1, number]).generate_state(1, np.uint64)[0]
    return dataclasses.replace(call, params=dataclasses.replace(call.params, seed=int(drawn) >> 64 - SEED_BITS))
