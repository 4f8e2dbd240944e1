"""Host: conversations to prompts: the model's chat template, or one that the caller brings, and its token ids."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.engine.inputs.per_prompt import named
from jaxserve.engine.inputs.prompt import Prompt, check_chars
from jaxserve.text.chat_template import ChatTemplate
from jaxserve.text.client_template import ClientTemplate
from jaxserve.text.tokenizer import Tokenizer

CHAT_PARAMS = SamplingParams(max_tokens=None)  # an answer may fill the context
OWN_VARIABLES = ("messages", "tools", "add_generation_prompt", "continue_final_message", "self")  # the last is jinja's


class ChatOptions(TypedDict, total=False):
    """The options of `ChatRenderer.prompts`, for those who pass them on."""

    chat_template: str | os.PathLike[str] | ClientTemplate | None
    add_generation_prompt: bool
    continue_final_message: bool
    tools: Sequence[Mapping[str, Any]] | None
    chat_template_kwargs: Mapping[str, Any] | None
    max_model_len: int | None


class ChatCallOptions(ChatOptions, SchedulingKwargs, total=False):
    """What a call of `chat` takes: how the conversation is written, and how the request is served."""


def split_options(options: ChatCallOptions) -> tuple[ChatOptions, SchedulingKwargs]:
    """The two kinds apart; names of neither stay with the first, which refuses them."""
    names = SchedulingKwargs.__annotations__
    scheduling = {name: value for name, value in options.items() if name in names}
    rendering = {name: value for name, value in options.items() if name not in names}
    return cast(ChatOptions, rendering), cast(SchedulingKwargs, scheduling)


@dataclass(frozen=True, slots=True)
class ChatRenderer:
    """One model's way of writing conversations. May be used from several threads at once."""

    template: ChatTemplate
    tokenizer: Tokenizer | None

    def prompts(
        self,
        conversations: Sequence[Any],
        *,
        chat_template: str | os.PathLike[str] | ClientTemplate | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        max_model_len: int | None = None,
    ) -> list[Prompt]:
        """Text and token ids of each conversation; the template writes all special tokens, the tokenizer adds none.

        chat_template: jinja text or the path of a file with it, both trusted; what a service's clients send goes into a
        `ClientTemplate`, which is rendered in a process of its own. add_generation_prompt: end where the assistant
        begins to speak. continue_final_message: end within the final message instead, for the model to go on with it.
        tools: JSON schemas of functions, for templates that show them. chat_template_kwargs: further variables of the
        template. max_model_len: a text that cannot be so few tokens is refused before it is encoded. Raises
        `RequestError` with the field at fault, and the conversation where there are several.
        """
        template = self.template
        if isinstance(chat_template, ClientTemplate):
            template = chat_template.with_special_tokens(template.special_tokens)
        elif chat_template is not None:
            template = template.with_source(read_template(chat_template))
        options = {
            "add_generation_prompt": _boolean("add_generation_prompt", add_generation_prompt),
            "continue_final_message": _boolean("continue_final_message", continue_final_message),
            "tools": _tools(tools),
            "variables": _variables(chat_template_kwargs),
        }
        if self.tokenizer is None:
            raise RequestError("this model has no tokenizer, which a chat needs: name one (tokenizer=…)", "messages")
        texts = []
        for i, messages in enumerate(conversations):
            with named(f"conversation {i}" if len(conversations) > 1 else None):
                texts.append(template.render(messages, **options))
                if max_model_len is not None:
                    check_chars(texts[-1], self.tokenizer, max_model_len, "messages")
        ids = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return [Prompt(text, token_ids) for text, token_ids in zip(texts, ids, strict=True)]


def read_conversations(messages: Any) -> list[Any]:
    """One conversation, a list of messages, or a list of such lists; the messages themselves are not looked at."""
    if isinstance(messages, list | tuple) and messages and all(isinstance(item, list | tuple) for item in messages):
        return list(messages)
    return [messages]


def read_template(template: str | os.PathLike[str]) -> str:
    """Jinja text as it is: it holds a brace. What holds none is the path of a file with it."""
    if not isinstance(template, str | os.PathLike):
        raise RequestError(
            f"chat_template must be jinja text or a path, not {type(template).__name__}", "chat_template"
        )
    if isinstance(template, str) and "{" in template:
        return template
    try:
        return Path(template).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        message = f"chat_template={str(template)!r} is not jinja text, which holds '{{', nor a readable file: {error}"
        raise RequestError(message, "chat_template") from None


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be True or False, not {value!r}", name)
    return value


def _tools(tools: Any) -> list[Mapping[str, Any]] | None:
    if tools is None:
        return None
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Mapping) for tool in tools):
        raise RequestError("tools must be a list of objects, each the schema of a function", "tools")
    return list(tools)


def _variables(variables: Any) -> dict[str, Any]:
    if variables is None:
        return {}
    if not isinstance(variables, Mapping) or not all(isinstance(name, str) for name in variables):
        raise RequestError("chat_template_kwargs must map names to values", "chat_template_kwargs")
    for name in OWN_VARIABLES:
        if name in variables:
            message = f"chat_template_kwargs holds {name}, which has a meaning of its own"
            raise RequestError(message, "chat_template_kwargs")
    return dict(variables)
