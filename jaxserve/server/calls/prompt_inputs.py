"""Host: the prompts of a request as text and token ids: encodes texts, renders chats, and truncates both."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from jaxserve.engine.inputs.prompt import Prompt, check_chars
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.generation_fields import SamplingFields
from jaxserve.server.openai.requests.tokenization_bodies import TokenizeBody
from jaxserve.server.server_state import ServerState
from jaxserve.text.tokenizer import Tokenizer

ASSISTANT = "assistant"


class Truncation:
    """Limits a prompt to `num_tokens`: the last ones (side "left"), or the first ones (side "right")."""

    def __init__(self, num_tokens: int, side: str):
        self.num_tokens, self.side = num_tokens, side

    @classmethod
    def of(cls, body: SamplingFields, max_model_len: int) -> "Truncation | None":
        """The body's truncation, or None. -1 keeps as many tokens as leave room for one token of output."""
        num_tokens = body.truncate_prompt_tokens
        if num_tokens is None:
            if body.truncation_side is not None:
                raise ApiError(400, "truncation_side needs truncate_prompt_tokens", param="truncation_side")
            return None
        return cls.of_length(num_tokens, max_model_len, reserved=1, side=body.truncation_side or "left")

    @classmethod
    def of_length(cls, num_tokens: int, max_model_len: int, *, reserved: int, side: str = "left") -> "Truncation":
        """reserved: tokens of the context that num_tokens=-1 does not fill."""
        if num_tokens == -1:
            num_tokens = max(max_model_len - reserved, 1)
        if not 0 < num_tokens <= max_model_len:
            message = f"truncate_prompt_tokens={num_tokens} must be -1, or from 1 to the context of {max_model_len}"
            raise ApiError(400, message, param="truncate_prompt_tokens")
        return cls(num_tokens, side)

    def __call__(self, ids: Sequence[int]) -> Sequence[int]:
        return ids[-self.num_tokens :] if self.side == "left" else ids[: self.num_tokens]


async def read_texts(
    state: ServerState,
    inputs: Sequence[str] | Sequence[list[int]],
    *,
    add_special_tokens: bool,
    truncation: Truncation | None,
) -> list[Prompt]:
    """The prompts of texts or token ids. All texts are encoded in one call in a thread, after a check of their length
    in characters."""
    texts = [text for text in inputs if isinstance(text, str)]
    if not texts:
        return [_truncated(Prompt(None, ids), truncation) for ids in inputs if isinstance(ids, list)]
    if truncation is None:
        for text in texts:
            check_chars(text, tokenizer_of(state), state.max_model_len, "prompt")
    encoded = await encode_texts(state, texts, add_special_tokens=add_special_tokens)
    return [_truncated(Prompt(text, ids), truncation) for text, ids in zip(texts, encoded, strict=True)]


async def chat_prompt(
    state: ServerState,
    body: ChatBody | TokenizeBody,
    truncation: Truncation | None,
    *,
    tools: Any,
    add_special_tokens: bool = False,
) -> Prompt:
    """The prompt that the chat template makes of the body's messages; those of the response role are an assistant's.

    tools: those that the template shows. add_special_tokens: the tokenizer adds its own to those of the template.
    """
    config = state.config
    if body.chat_template is not None and not config.trust_request_chat_template:
        message = "this server does not accept chat templates from clients (--trust-request-chat-template)"
        raise ApiError(400, message, param="chat_template")
    if body.chat_template is not None and "{" not in body.chat_template:  # the engine would read it as a file's path
        raise ApiError(400, "chat_template must be jinja text, which contains a brace", param="chat_template")
    continues = body.continue_final_message
    generates = not continues if body.add_generation_prompt is None else body.add_generation_prompt
    variables: dict[str, Any] = {**(config.default_chat_template_kwargs or {}), **(body.chat_template_kwargs or {})}
    render = partial(state.engine.render_chat, chat_template=body.chat_template)
    if body.chat_template is not None and state.client_templates is not None:
        render = partial(state.client_templates.render_chat, state.engine, body.chat_template)
    rendered = await render(
        _as_assistant(body.messages, config.response_role),
        add_generation_prompt=generates,
        continue_final_message=continues,
        tools=tools,
        reasoning_effort=body.reasoning_effort,
        chat_template_kwargs=variables,
        max_model_len=None if truncation is not None else state.max_model_len,
        add_special_tokens=add_special_tokens,
    )
    return _truncated(rendered, truncation)


def _as_assistant(messages: Any, response_role: str) -> Any:
    """Unchecked messages in which clients may have sent back responses of a role that no template knows."""
    if response_role == ASSISTANT or not isinstance(messages, list):
        return messages

    def converted(message: Any) -> Any:
        fields = cast(dict[str, Any], message) if isinstance(message, dict) else {}
        return {**fields, "role": ASSISTANT} if fields.get("role") == response_role else cast(Any, message)

    return [converted(message) for message in cast(list[Any], messages)]


async def encode_texts(state: ServerState, texts: list[str], *, add_special_tokens: bool) -> list[list[int]]:
    """Token ids of each text, without a limit on length; encoded in a thread."""
    return await asyncio.to_thread(tokenizer_of(state).encode_batch, texts, add_special_tokens=add_special_tokens)


def tokenizer_of(state: ServerState) -> Tokenizer:
    """The model's tokenizer. Raises `ApiError` if there is none."""
    tokenizer = state.engine.tokenizer
    if tokenizer is None:
        raise ApiError(400, "this model has no tokenizer: send prompts as token ids", param="prompt")
    return tokenizer


def _truncated(prompt: Prompt, truncation: Truncation | None) -> Prompt:
    """A truncated prompt has token ids only, no text."""
    if truncation is None or prompt.token_ids is None or len(prompt.token_ids) <= truncation.num_tokens:
        return prompt
    return Prompt(None, truncation(prompt.token_ids), prompt.cache_salt)
