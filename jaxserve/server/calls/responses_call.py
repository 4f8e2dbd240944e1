"""Host: `responses_call`: a body of /v1/responses translated for the engine, on the path of chats."""

import asyncio
from functools import partial
from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.server.calls.fitted_prompt import fitted_prompt
from jaxserve.server.calls.generation_call import GenerationCall, salted_call, sampling_params_of
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.responses.openai_logprobs import TokenTexts
from jaxserve.server.openai.responses_api.generated_response import GeneratedResponse
from jaxserve.server.openai.responses_api.input_items import Item, Message, messages_of
from jaxserve.server.openai.responses_api.kept_items import kept_items
from jaxserve.server.openai.responses_api.response_head import ResponseHead
from jaxserve.server.openai.responses_api.responses_body import ResponsesBody
from jaxserve.server.server_state import ServerState
from jaxserve.text.parsing.answer_format import AnswerFormat


async def responses_call(
    state: ServerState, body: ResponsesBody, request_id: str, client: str | None = None
) -> GenerationCall:
    """client: as in `completion_call`."""
    name = state.model_name(body.model)
    params = await sampling_params_of(state, body, None, body.own_params)
    state.engine.check_room(params.num_sequences)
    response_id = f"resp_{request_id}"
    items, prompt = await _conversation(state, body, response_id, client)
    head = ResponseHead(response_id, name, _echo(body, params))
    texts = TokenTexts(state.engine.tokenizer, as_ids=False)
    num_top = (body.top_logprobs or 0) if body.has_logprobs else None

    def keep(response: dict[str, Any]) -> None:
        if body.store:
            state.responses.put(client, response, items)

    response = GeneratedResponse(head, texts, num_top, AnswerFormat(), keep)
    return salted_call(state, body, [prompt], params, response, response, client)


async def _conversation(
    state: ServerState, body: ResponsesBody, response_id: str, client: str | None
) -> tuple[list[Item], Prompt]:
    """All items, those of the response that the body continues before its own, and the prompt that they are."""

    def make() -> tuple[list[Item], list[Message]]:
        items = kept_items(body.items, response_id.removeprefix("resp_"))
        if body.previous_response_id is not None:
            items = [*_previous(state, body.previous_response_id, client), *items]
        if body.store:
            state.responses.check_room(items)
        return items, messages_of(body.instructions or None, items)

    items, messages = await asyncio.to_thread(make)
    render = partial(
        state.engine.render_chat,
        chat_template_kwargs=state.config.default_chat_template_kwargs,
        max_model_len=state.max_model_len,
    )
    try:
        if body.truncation == "disabled":
            prompt = await render(messages)
        else:
            num_output = min(body.max_output_tokens or 1, state.max_model_len - 1)
            prompt = await fitted_prompt(render, messages, state.max_model_len - num_output)
    except RequestError as error:
        if (error.param or "").startswith("messages"):
            raise RequestError(f"instructions and input, as messages: {error}", body.prompt_field) from error
        raise
    return items, prompt


def _previous(state: ServerState, response_id: str, client: str | None) -> list[Item]:
    try:
        return state.responses.conversation(client, response_id)
    except ApiError as error:
        param = "previous_response_id"
        raise ApiError(400, f"{param}: {error}", param=param, code="previous_response_not_found") from None


def _echo(body: ResponsesBody, params: SamplingParams) -> dict[str, Any]:
    """The fields by which a response repeats what was asked for."""
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "metadata": body.metadata or {},
        "parallel_tool_calls": True,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "temperature": params.temperature,
        "text": {"format": {"type": "text"} if body.text is None else body.text.format},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": body.truncation,
        "user": body.user,
    }
