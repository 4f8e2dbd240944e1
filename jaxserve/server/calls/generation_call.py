"""Host: `GenerationCall`: a validated body translated for the engine; used by HTTP routes and batch files."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from jaxserve.core.options.lora_request import Adapter
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.core.outputs import RequestOutput
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.engine.serving.offload import offload
from jaxserve.server.calls.prompt_inputs import Truncation, chat_prompt, read_texts
from jaxserve.server.calls.stream_events import ChunkEvents, StreamEvents
from jaxserve.server.calls.tool_answers import answer_format, form_of, read_params, read_tool_use
from jaxserve.server.http.json_response import MAX_INLINE_ITEMS
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import DEFAULT_MAX_TOKENS, CompletionBody
from jaxserve.server.openai.requests.generation_fields import GenerationFields, SamplingFields
from jaxserve.server.openai.responses.chat_answers import ChatAnswers
from jaxserve.server.openai.responses.chat_response import ChatResponse
from jaxserve.server.openai.responses.completion_response import CompletionResponse
from jaxserve.server.openai.responses.envelope import Envelope, Usage
from jaxserve.server.openai.responses.openai_logprobs import TokenTexts
from jaxserve.server.server_state import ServerState
from jaxserve.text.chat_messages import text_of


class ResponseBuilder(Protocol):
    """Builds an endpoint's whole response from the engine's outputs."""

    usage: Usage

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class GenerationCall:
    """adapter, options: of all prompts. events: how the response is streamed."""

    body: GenerationFields
    prompts: list[Prompt]
    params: SamplingParams
    adapter: Adapter | None
    options: SchedulingKwargs
    response: ResponseBuilder
    events: StreamEvents


async def completion_call(
    state: ServerState, body: CompletionBody, request_id: str, client: str | None = None
) -> GenerationCall:
    """client: its prefix cache is separate from other clients' where the server salts by key."""
    model = state.served_model(body.model, body.lora_path)
    envelope = Envelope(f"cmpl-{request_id}", model.name)
    others: dict[str, Any] = {"logprobs": body.logprobs}
    if body.echo and body.logprobs is not None:
        others["prompt_logprobs"] = _max_num_logprobs(body.logprobs, body.prompt_logprobs)
    if body.max_tokens == 0:  # computed as a completion of one token, which the response leaves out
        others["max_tokens"] = 1
    params = await sampling_params_of(state, body, DEFAULT_MAX_TOKENS, others)
    state.engine.check_room(params.num_sequences)
    truncation = Truncation.of(body, state.max_model_len)
    prompts = await read_texts(state, body.prompts, add_special_tokens=body.add_special_tokens, truncation=truncation)
    texts, detokenizer = _token_texts(state, body), state.engine.detokenizer
    response = CompletionResponse(body, envelope, len(prompts), texts, detokenizer)
    events = ChunkEvents(response, body, state.config)
    return salted_call(state, body, prompts, params, model.adapter, response, events, client)


async def chat_call(state: ServerState, body: ChatBody, request_id: str, client: str | None = None) -> GenerationCall:
    """client: as in `completion_call`."""
    model = state.served_model(body.model, body.lora_path)
    envelope = Envelope(f"chatcmpl-{request_id}", model.name)
    others: dict[str, Any] = {"logprobs": body.top_logprobs if body.logprobs else None}
    if body.max_completion_tokens is not None:
        others["max_tokens"] = body.max_completion_tokens
    params = await sampling_params_of(state, body, None, others)
    state.engine.check_room(params.num_sequences)
    tool_use, constraint = await read_tool_use(body.tools, body.tool_choice, body.parallel_tool_calls)
    form = form_of(params, constraint)
    prompt = await chat_prompt(state, body, Truncation.of(body, state.max_model_len), tools=tool_use.tools)
    answers = answer_format(
        state,
        tool_use,
        prompt_ids=prompt.token_ids or (),
        started=text_of(body.messages[-1].get("content")) if body.continue_final_message else None,
        separates_reasoning=body.separate_reasoning,
        has_form=form is not None,
    )
    params = read_params(state, params, form, answers)
    role = state.config.response_role
    start = body.last_content(role) if body.echo else ""
    message = ChatAnswers(body, answers, state.engine.detokenizer, params, role, start)
    response = ChatResponse(body, envelope, _token_texts(state, body), message)
    events = ChunkEvents(response, body, state.config)
    return salted_call(state, body, [prompt], params, model.adapter, response, events, client)


def _token_texts(state: ServerState, body: SamplingFields) -> TokenTexts:
    """How the tokens of log-probabilities are written: as the body wants, else as the server's option."""
    is_set = "return_tokens_as_token_ids" in body.model_fields_set
    as_ids = body.return_tokens_as_token_ids if is_set else state.config.return_tokens_as_token_ids
    return TokenTexts(state.engine.tokenizer, as_ids=as_ids)


async def sampling_params_of(
    state: ServerState, body: GenerationFields, max_tokens: int | None, others: Mapping[str, Any]
) -> SamplingParams:
    """The body's sampling parameters. max_tokens: the endpoint's default. others: see `sampling_params`."""
    size = len(body.allowed_token_ids or ()) + len(body.stop_token_ids or ())
    if body.is_constrained:
        size += MAX_INLINE_ITEMS + 1
    defaults = state.sampling_defaults(max_tokens=max_tokens)
    return await offload(lambda: body.sampling_params(defaults, **others), size, MAX_INLINE_ITEMS)


def salted_call(
    state: ServerState,
    body: GenerationFields,
    prompts: list[Prompt],
    params: SamplingParams,
    adapter: Adapter | None,
    response: ResponseBuilder,
    events: StreamEvents,
    client: str | None,
) -> GenerationCall:
    """The call of prompts that share cached prefixes with whom the body and the server want."""
    salt = body.cache_salt
    if client is not None and state.config.salt_by_key:
        salt = client if salt is None else hashlib.sha256(f"{client}/{salt}".encode()).hexdigest()
    salted = [replace(prompt, cache_salt=salt) for prompt in prompts]
    options = body.scheduling(state.config.request_timeout_s)
    return GenerationCall(body, salted, params, adapter, options, response, events)


def _max_num_logprobs(first: int, second: int | None) -> int:
    """The number of log-probabilities that covers both; -1 means all."""
    return first if second is None else -1 if -1 in (first, second) else max(first, second)
