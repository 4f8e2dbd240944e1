"""Host: `GenerationCall`: a validated body with everything the engine needs; shared by HTTP and batch files."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.core.outputs import RequestOutput
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.server.calls.prompt_inputs import Truncation, chat_prompt, completion_prompts
from jaxserve.server.http.offload import offload
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import DEFAULT_MAX_TOKENS, CompletionBody
from jaxserve.server.openai.requests.generation_fields import SamplingFields
from jaxserve.server.openai.responses.chat_response import ChatResponse
from jaxserve.server.openai.responses.completion_response import CompletionResponse
from jaxserve.server.openai.responses.envelope import Envelope
from jaxserve.server.openai.responses.usage import Usage
from jaxserve.server.server_state import ServerState


class ResponseBuilder(Protocol):
    """How a surface tells what the engine gives, whole or in chunks."""

    usage: Usage

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]: ...
    def chunks(self, prompt: int, piece: RequestOutput) -> Iterator[dict[str, Any]]: ...
    def last_chunk(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class GenerationCall:
    """options: how it is served beside others."""

    body: SamplingFields
    prompts: list[Prompt]
    params: SamplingParams
    options: SchedulingKwargs
    answer: ResponseBuilder


async def completion_call(
    service: ServerState, body: CompletionBody, request_id: str, client: str | None = None
) -> GenerationCall:
    """client: whose cached prefixes it may use, where clients are kept apart."""
    service.llm.check_room(body.n)
    head = Envelope(f"cmpl-{request_id}", service.name_of(body.model))
    others: dict[str, Any] = {"logprobs": body.logprobs}
    if body.echo and body.logprobs is not None:
        others["prompt_logprobs"] = _more(body.logprobs, body.prompt_logprobs)
    if body.max_tokens == 0:  # a prompt alone is a text of one token whose token is not told
        others["max_tokens"] = 1
    params = await _params(body, service.defaults(max_tokens=DEFAULT_MAX_TOKENS), others)
    keep = Truncation.of(body, service.max_model_len)
    prompts = await completion_prompts(service, body.prompts, add_special_tokens=body.add_special_tokens, keep=keep)
    answer = CompletionResponse(body, head, len(prompts), service.llm.get_tokenizer(), service.llm.detokenizer)
    return _call(service, body, prompts, params, answer, client)


async def chat_call(service: ServerState, body: ChatBody, request_id: str, client: str | None = None) -> GenerationCall:
    """As `completion_call`."""
    service.llm.check_room(body.n)
    head = Envelope(f"chatcmpl-{request_id}", service.name_of(body.model))
    others: dict[str, Any] = {"logprobs": body.top_logprobs if body.logprobs else None}
    if body.max_completion_tokens is not None:
        others["max_tokens"] = body.max_completion_tokens
    params = await _params(body, service.defaults(max_tokens=None), others)
    keep = Truncation.of(body, service.max_model_len)
    prompts = [await chat_prompt(service, body, keep)]
    role = service.config.response_role
    answer = ChatResponse(body, head, service.llm.get_tokenizer(), role, body.last_said(role) if body.echo else "")
    return _call(service, body, prompts, params, answer, client)


async def _params(body: SamplingFields, defaults: Mapping[str, Any], others: Mapping[str, Any]) -> SamplingParams:
    num_ids = len(body.allowed_token_ids or ()) + len(body.stop_token_ids or ())
    return await offload(lambda: body.sampling_params(defaults, **others), num_ids)


def _call(
    service: ServerState,
    body: SamplingFields,
    prompts: list[Prompt],
    params: SamplingParams,
    answer: ResponseBuilder,
    client: str | None,
) -> GenerationCall:
    salt = body.cache_salt
    if client is not None and service.config.salt_by_key:
        salt = client if salt is None else hashlib.sha256(f"{client}/{salt}".encode()).hexdigest()
    salted = [replace(prompt, cache_salt=salt) for prompt in prompts]
    return GenerationCall(body, salted, params, body.scheduling(service.config.request_timeout_s), answer)


def _more(first: int, second: int | None) -> int:
    """Of two numbers of log-probabilities the one that covers both; -1 is all."""
    return first if second is None else -1 if -1 in (first, second) else max(first, second)
