"""Host: how a server reads the answers of a chat: the tools that may be called, the formats of its model."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_state import ServerState
from jaxserve.text.parsing.answer_format import AnswerFormat
from jaxserve.text.reasoning.reasoning_tags import REASONING_TAGS, ReasoningTags, tags_of_template
from jaxserve.text.tool_calls.tool_call_formats import TOOL_CALL_FORMATS, ToolCallFormat, format_of_template
from jaxserve.text.tool_calls.tool_schema import AUTO
from jaxserve.text.tool_calls.tool_use import ToolUse

NUM_END_TOKENS = 16  # of a prompt; an opening tag, with the line break after it, has at most 8


async def read_tool_use(tools: Any, choice: Any, is_parallel: bool) -> tuple[ToolUse, StructuredOutputsParams | None]:
    """What a body says of tools, as chats do, and what that demands of the answer's form. Raises `RequestError`."""

    def read() -> tuple[ToolUse, StructuredOutputsParams | None]:
        tool_use = ToolUse.read(tools, choice, is_parallel)
        return tool_use, tool_use.constraint

    return await asyncio.to_thread(read) if tools else read()


def form_of(params: SamplingParams, constraint: StructuredOutputsParams | None) -> StructuredOutputsParams | None:
    """The form that the body asks for, or that its tools demand; None: any text. Raises `RequestError` for both."""
    if constraint is not None and params.constraint is not None:
        message = "tool_choice holds the answer to calls, so no other form can be asked for"
        raise RequestError(message, "tool_choice")
    return constraint or params.constraint


def answer_format(
    state: ServerState,
    tool_use: ToolUse,
    *,
    prompt_ids: Sequence[int],
    started: str | None,
    separates_reasoning: bool,
    has_form: bool,
) -> AnswerFormat:
    """How answers to one prompt are read.

    started: the text of the message that the answer continues, None for a new message. has_form: a grammar holds the
    answers, which have no reasoning then where its tags are special tokens: no grammar allows these.
    """
    forced = tool_use.forced_format
    tags = _tags(state) if separates_reasoning else None
    if has_form and tags is not None and state.special_ids((tags.start, tags.end)):
        tags = None
    begins_inside = tags is not None and _begins_inside(state, tags, prompt_ids, started)
    calls = forced if forced is not None else _calls(state) if tool_use.choice == AUTO else None
    return AnswerFormat(calls, tool_use.names, tool_use.max_calls, tags, begins_inside)


def read_params(
    state: ServerState, params: SamplingParams, form: StructuredOutputsParams | None, answers: AnswerFormat
) -> SamplingParams:
    """The parameters of a chat whose answers have this form after their reasoning, and so that texts show the markers
    that parsers look for."""
    shown = state.special_ids(answers.markers)
    if form is not None and answers.tags is not None:
        form = answers.tags.before(form, is_inside=answers.begins_inside)
    if form is params.constraint and not shown:
        return params
    return replace(params, structured_outputs=form, shown_special_ids=shown)


def _calls(state: ServerState) -> ToolCallFormat:
    """The format of calls that the model chooses to make."""
    if not state.config.enable_auto_tool_choice:
        message = 'this server refuses tool_choice "auto" (--no-enable-auto-tool-choice): send "required" or a function'
        raise ApiError(400, message, param="tool_choice")
    name = state.config.tool_call_parser
    name = format_of_template(state.engine.info.chat_template.source) if name == "auto" else name
    found = TOOL_CALL_FORMATS.get(name or "")
    if found is None:
        message = (
            "this server reads no tool calls of this model (--tool-call-parser): "
            'send tool_choice "none", "required" or a function'
        )
        raise ApiError(400, message, param="tool_choice")
    return found


def _tags(state: ServerState) -> ReasoningTags | None:
    name = state.config.reasoning_parser
    name = tags_of_template(state.engine.info.chat_template.source) if name == "auto" else name
    return REASONING_TAGS.get(name or "")


def _begins_inside(state: ServerState, tags: ReasoningTags, prompt_ids: Sequence[int], started: str | None) -> bool:
    if started is not None:
        return started.rfind(tags.start) > started.rfind(tags.end)
    tokenizer = state.engine.tokenizer
    assert tokenizer is not None  # of a rendered chat
    return tags.begins_inside(tokenizer.decode(prompt_ids[-NUM_END_TOKENS:], skip_special_tokens=False))
