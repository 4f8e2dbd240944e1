"""Host: `ChatRenderer`: conversations to prompts, by the model's chat template or one that the caller gives."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.engine.inputs.per_prompt import as_list, name_of, named
from jaxserve.engine.inputs.prompt import Prompt, check_chars
from jaxserve.text.chat_template import ChatTemplate
from jaxserve.text.client_template import ClientTemplate
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tool_calls.tool_schema import checked_tools
from jaxserve.text.user_text import unmarked

CHAT_PARAMS = SamplingParams(max_tokens=None)  # an answer may fill the context
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")  # OpenAI's
OWN_VARIABLES = ("messages", "tools", "add_generation_prompt", "continue_final_message", "self")  # the last is jinja's


class ChatOptions(TypedDict, total=False):
    """The options of `ChatRenderer.prompts`, for functions that pass them on."""

    chat_template: str | os.PathLike[str] | ClientTemplate | None
    add_generation_prompt: bool
    continue_final_message: bool
    tools: Sequence[Mapping[str, Any]] | None
    chat_template_kwargs: Mapping[str, Any] | None
    reasoning_effort: str | None
    max_model_len: int | None
    add_special_tokens: bool


class ChatCallOptions(ChatOptions, SchedulingKwargs, total=False):
    """The options of a call of `chat`: how the conversation is rendered, and how the request is scheduled."""


def split_options(options: ChatCallOptions) -> tuple[ChatOptions, SchedulingKwargs]:
    """The two kinds apart; unknown names stay with the first, whose receiver refuses them."""
    names = SchedulingKwargs.__annotations__
    scheduling = {name: value for name, value in options.items() if name in names}
    rendering = {name: value for name, value in options.items() if name not in names}
    return cast(ChatOptions, rendering), cast(SchedulingKwargs, scheduling)


@dataclass(frozen=True, slots=True)
class ChatRenderer:
    """Renders conversations for one model. May be used from several threads at once."""

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
        reasoning_effort: str | None = None,
        max_model_len: int | None = None,
        add_special_tokens: bool = False,
    ) -> list[Prompt]:
        """Text and token ids of each conversation; the template writes the special tokens.

        chat_template: jinja text or the path of a file with it, both trusted; templates of a server's clients go into a
        `ClientTemplate`, which is rendered in a process of its own. add_generation_prompt: end with the header of an
        assistant message. continue_final_message: end within the final message instead, for the model to continue it.
        tools: functions that the model may call, as {"type": "function", "function": {"name", "description",
        "parameters"}}; refused for templates that do not show them. chat_template_kwargs: further variables of the
        template. reasoning_effort: "none", "low" and so on, for templates that read it. max_model_len: a text that
        cannot be so few tokens is refused before it is encoded.
        add_special_tokens: the tokenizer adds its own around the template's text. Raises `RequestError` with the field
        at fault, and the conversation where there are several.
        """
        template = self.template
        if isinstance(chat_template, ClientTemplate):
            template = chat_template.with_special_tokens(template.special_tokens)
        elif chat_template is not None:
            template = template.with_source(
                read_template(chat_template), named_template("the request's", chat_template)
            )
        is_generation = _boolean("add_generation_prompt", add_generation_prompt)
        is_continued = _boolean("continue_final_message", continue_final_message)
        adds_special_tokens = _boolean("add_special_tokens", add_special_tokens)
        offered, variables = checked_tools(tools), _variables(chat_template_kwargs)
        if reasoning_effort is not None and reasoning_effort not in EFFORTS:
            raise RequestError(f"reasoning_effort must be one of {', '.join(EFFORTS)}", "reasoning_effort")
        if self.tokenizer is None:
            raise RequestError("this model has no tokenizer, which a chat needs: name one (tokenizer=…)", "messages")
        texts: list[str] = []
        for i, messages in enumerate(conversations):
            with named(name_of(i, len(conversations), "conversation")):
                text = template.render(
                    messages,
                    tools=offered,
                    add_generation_prompt=is_generation,
                    continue_final_message=is_continued,
                    variables=variables,
                    reasoning_effort=reasoning_effort,
                    plain_tokens=self.tokenizer.plain_tokens,
                )
                if max_model_len is not None:
                    check_chars(text, self.tokenizer, max_model_len, "messages")
            texts.append(text)
        ids = self.tokenizer.encode_rendered(texts, add_special_tokens=adds_special_tokens)
        if self.tokenizer.plain_tokens:
            texts = [unmarked(text) for text in texts]
        return [Prompt(text, token_ids) for text, token_ids in zip(texts, ids, strict=True)]


def read_conversations(messages: Any) -> list[Any]:
    """One conversation, a list of messages, or a list of such lists; the messages themselves are not checked."""
    items = as_list(messages)
    return items if items and all(isinstance(item, list | tuple) for item in items) else [messages]


def read_template(template: Any) -> str:
    """Jinja text, which holds a brace, as it is; any other text, or a path, as the path of a file with it."""
    kind, shown = type(template).__name__, repr(str(template))
    if isinstance(template, str) and "{" in template:
        return template
    if not isinstance(template, str | os.PathLike):
        raise RequestError(f"chat_template must be jinja text or a path, not {kind}", "chat_template")
    try:
        return Path(cast("str | os.PathLike[str]", template)).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        message = f"chat_template={shown} is not jinja text, which holds '{{', nor a readable file: {error}"
        raise RequestError(message, "chat_template") from None


def named_template(whose: str, template: Any) -> str:
    """How errors call a template that `read_template` takes: of files, only the name."""
    is_text = isinstance(template, str) and "{" in template
    return f"{whose} chat template" if is_text else f"{whose} chat template ({Path(template).name})"


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be True or False, not {value!r}", name)
    return value


def _variables(variables: Any) -> dict[str, Any]:
    if variables is None:
        return {}
    named_values = dict(cast(Mapping[Any, Any], variables)) if isinstance(variables, Mapping) else None
    if named_values is None or not all(isinstance(name, str) for name in named_values):
        raise RequestError("chat_template_kwargs must map names to values", "chat_template_kwargs")
    for name in OWN_VARIABLES:
        if name in named_values:
            message = f"chat_template_kwargs holds {name}, which has a meaning of its own"
            raise RequestError(message, "chat_template_kwargs")
    return named_values
