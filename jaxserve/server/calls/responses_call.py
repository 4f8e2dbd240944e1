"""Host: `responses_call`: a body of /v1/responses translated for the engine, on the path of chats."""

import asyncio
from functools import partial
from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.server.calls.fitted_prompt import fitted_prompt
from jaxserve.server.calls.generation_call import GenerationCall, salted_call, sampling_params_of
from jaxserve.server.calls.tool_answers import answer_format, form_of, read_params, read_tool_use
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.responses.openai_logprobs import TokenTexts
from jaxserve.server.openai.responses.reasoning_tokens import ReasoningTokens
from jaxserve.server.openai.responses_api.function_tools import chat_choice, chat_tools, errors_name_flat_tools
from jaxserve.server.openai.responses_api.generated_response import GeneratedResponse
from jaxserve.server.openai.responses_api.input_items import Item, Message, messages_of
from jaxserve.server.openai.responses_api.kept_items import kept_items
from jaxserve.server.openai.responses_api.response_head import ResponseHead
from jaxserve.server.openai.responses_api.responses_body import ResponsesBody
from jaxserve.server.server_state import ServerState
from jaxserve.text.parsing.answer_format import AnswerFormat
from jaxserve.text.tool_calls.tool_use import ToolUse

PREFIX = "resp_"


async def responses_call(
    state: ServerState, body: ResponsesBody, request_id: str, client: str | None = None
) -> GenerationCall:
    """client: as in `completion_call`; it sees its own stored responses."""
    model = state.served_model(body.model, body.lora_path)
    params = await sampling_params_of(state, body, None, body.own_params)
    state.engine.check_room(params.num_sequences)
    with errors_name_flat_tools():
        tools, choice = chat_tools(body.tools), chat_choice(body.tool_choice)
        tool_use, constraint = await read_tool_use(tools, choice, body.parallel_tool_calls)
    form = form_of(params, constraint)
    items = await asyncio.to_thread(_items, state, body, request_id, client)
    prompt = await _prompt(state, body, items, tool_use)
    answers = answer_format(
        state,
        tool_use,
        prompt_ids=prompt.token_ids or (),
        started=None,
        separates_reasoning=True,
        has_form=form is not None,
    )
    if body.has_logprobs and not answers.is_plain:
        message = "include: log-probabilities go only with output that is text alone, without reasoning or tools"
        raise ApiError(400, message, param="include")
    params = read_params(state, params, form, answers)

    def keep(response: dict[str, Any]) -> None:
        if body.store:
            state.responses.put(client, response, items)

    response = GeneratedResponse(
        ResponseHead(PREFIX + request_id, model.name, body.echo(params)),
        TokenTexts(state.engine.tokenizer, as_ids=False),
        (body.top_logprobs or 0) if body.has_logprobs else None,
        answers,
        _reasoning_tokens(state, answers, prompt, params),
        keep,
    )
    return salted_call(state, body, [prompt], params, model.adapter, response, response, client)


def _items(state: ServerState, body: ResponsesBody, request_id: str, client: str | None) -> list[Item]:
    """The whole conversation: the items of the response that the body continues before its own."""
    items = kept_items(body.items, request_id)
    if body.previous_response_id is not None:
        items = [*_previous(state, body.previous_response_id, client), *items]
    if body.store:
        state.responses.check_room(items)
    return items


def _previous(state: ServerState, response_id: str, client: str | None) -> list[Item]:
    try:
        return state.responses.conversation(client, response_id)
    except ApiError as error:
        param = "previous_response_id"
        raise ApiError(400, f"{param}: {error}", param=param, code="previous_response_not_found") from None


async def _prompt(state: ServerState, body: ResponsesBody, items: list[Item], tool_use: ToolUse) -> Prompt:
    """What the chat template makes of the conversation; errors name the body's fields."""
    messages: list[Message] = await asyncio.to_thread(messages_of, body.instructions or None, items)
    render = partial(
        state.engine.render_chat,
        tools=tool_use.tools,
        reasoning_effort=None if body.reasoning is None else body.reasoning.effort,
        chat_template_kwargs={**(state.config.default_chat_template_kwargs or {}), **(body.chat_template_kwargs or {})},
        max_model_len=state.max_model_len,
    )
    try:
        if body.truncation == "disabled":
            return await render(messages)
        num_output = min(body.max_output_tokens or 1, state.max_model_len - 1)
        return await fitted_prompt(render, messages, state.max_model_len - num_output)
    except RequestError as error:
        if (error.param or "").startswith("messages"):
            raise RequestError(f"instructions and input, as messages: {error}", body.prompt_field) from error
        if error.param == "reasoning_effort":
            raise RequestError(str(error).replace(error.param, "reasoning.effort"), "reasoning.effort") from error
        raise


def _reasoning_tokens(
    state: ServerState, answers: AnswerFormat, prompt: Prompt, params: SamplingParams
) -> ReasoningTokens | None:
    """None where reasoning is not told apart."""
    detokenizer = state.engine.detokenizer
    if answers.tags is None or detokenizer is None:
        return None
    shown = params.skip_special_tokens, tuple(params.shown_special_ids)
    return ReasoningTokens(answers, detokenizer.stream(prompt.token_ids or (), *shown))
