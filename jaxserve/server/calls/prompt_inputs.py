"""Host: prompts of a request as text and token ids, cut where the client says so, refused where they are too long."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from jaxserve.engine.inputs.prompt import Prompt, check_chars
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.generation_fields import SamplingFields
from jaxserve.server.server_state import ServerState
from jaxserve.text.tokenizer import Tokenizer


async def completion_prompts(
    service: ServerState,
    prompts: Sequence[str] | Sequence[list[int]],
    *,
    add_special_tokens: bool,
    keep: "Truncation | None",
) -> list[Prompt]:
    """Texts are encoded in a thread, all in one call; of one that cannot fit this is told before."""
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    if not texts:
        return [_cut(Prompt(None, ids), keep) for ids in prompts if isinstance(ids, list)]
    if keep is None:
        for text in texts:
            check_chars(text, tokenizer_of(service), service.max_model_len, "prompt")
    ids = await encoded(service, texts, add_special_tokens=add_special_tokens)
    return [_cut(Prompt(text, found), keep) for text, found in zip(texts, ids, strict=True)]


async def chat_prompt(service: ServerState, body: Any, keep: "Truncation | None") -> Prompt:
    """What the chat template makes of the messages. body: a `ChatBody`, or a `TokenizeBody` with messages."""
    config = service.config
    if body.chat_template is not None and not config.trust_request_chat_template:
        message = "this server takes no chat templates from clients (--trust-request-chat-template)"
        raise ApiError(400, message, param="chat_template")
    if body.chat_template is not None and "{" not in body.chat_template:  # else the engine took it for a path
        raise ApiError(400, "chat_template must be jinja text, which holds a brace", param="chat_template")
    continues = body.continue_final_message
    generates = not continues if body.add_generation_prompt is None else body.add_generation_prompt
    variables = {**(config.default_chat_template_kwargs or {}), **(body.chat_template_kwargs or {})}
    render = partial(service.llm.client.render_chat, chat_template=body.chat_template)
    if body.chat_template is not None and service.client_templates is not None:
        render = partial(service.client_templates.render_chat, service.llm, body.chat_template)
    rendered = await render(
        body.messages,
        add_generation_prompt=generates,
        continue_final_message=continues,
        chat_template_kwargs=variables,
        max_model_len=None if keep is not None else service.max_model_len,
    )
    return _cut(rendered, keep)


class Truncation:
    """How many tokens of a prompt are kept, and at which end: the last ones, unless the right end is cut."""

    def __init__(self, num_tokens: int, side: str):
        self.num_tokens, self.side = num_tokens, side

    @classmethod
    def of(cls, body: SamplingFields, max_model_len: int) -> "Truncation | None":
        """None: nothing is cut. -1 leaves room for one token of output, as is asked of prompts that are not cut."""
        asked = body.truncate_prompt_tokens
        if asked is None:
            if body.truncation_side is not None:
                raise ApiError(400, "truncation_side needs truncate_prompt_tokens", param="truncation_side")
            return None
        return cls.of_length(asked, max_model_len, needed=1, side=body.truncation_side or "left")

    @classmethod
    def of_length(cls, asked: int, max_model_len: int, *, needed: int, side: str = "left") -> "Truncation":
        """needed: tokens of the context that are not for the prompt where it is cut at -1."""
        if asked == -1:
            asked = max(max_model_len - needed, 1)
        if not 0 < asked <= max_model_len:
            message = f"truncate_prompt_tokens={asked} must be -1, or from 1 to the context of {max_model_len}"
            raise ApiError(400, message, param="truncate_prompt_tokens")
        return cls(asked, side)

    def __call__(self, ids: Sequence[int]) -> Sequence[int]:
        return ids[-self.num_tokens :] if self.side == "left" else ids[: self.num_tokens]


def _cut(prompt: Prompt, keep: Truncation | None) -> Prompt:
    """A prompt that was cut has no text."""
    if keep is None or prompt.token_ids is None or len(prompt.token_ids) <= keep.num_tokens:
        return prompt
    return Prompt(None, keep(prompt.token_ids), prompt.cache_salt)


async def encoded(service: ServerState, texts: list[str], *, add_special_tokens: bool) -> list[list[int]]:
    """Token ids of each text, however long; made in a thread."""
    return await asyncio.to_thread(tokenizer_of(service).encode_batch, texts, add_special_tokens=add_special_tokens)


def tokenizer_of(service: ServerState) -> Tokenizer:
    """Raises `ApiError` where the model has none."""
    tokenizer = service.llm.get_tokenizer()
    if tokenizer is None:
        raise ApiError(400, "this model has no tokenizer: send prompts as token ids", param="prompt")
    return tokenizer
