"""Host: `ChatTemplate`: renders a list of messages to the prompt text that a model was trained on."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.text.chat_messages import checked_messages
from jaxserve.text.folder_json import read_json, token_text

MAX_TEMPLATE_CHARS = 1 << 20
CONTINUED = "\ue000the final message ends here\ue000 "  # its final space shows whether the template trims
TESTS_NULL = re.compile(r"\bcontent['\"\])]*\s+is\s+(not\s+)?none", re.IGNORECASE)  # not reasoning_content
READS_PARTS = re.compile(r"\{%-?\s*for\s+\w+\s+in\s+[\w.\[\]'\"]*\bcontent\b['\"\])]*\s*(-?%\}|\||if\b)")
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # as Python writes an object: errors go to clients, who need not learn it
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """One model's template.

    source: jinja2 text, None for a model without a template. special_tokens: bos_token and so on.
    """

    def __init__(self, source: str | None, special_tokens: Mapping[str, str] | None = None):
        self.source = source
        self.special_tokens = dict(special_tokens or {})
        self._compiled = None

    def with_source(self, source: str) -> "ChatTemplate":
        """Another template with this model's special tokens."""
        return ChatTemplate(source, self.special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt with its special tokens as text: encode it with add_special_tokens=False.

        add_generation_prompt: end with the header of the assistant's answer. continue_final_message: end inside the
        last message, which the model continues; not together with add_generation_prompt. variables: the template's own
        (such as enable_thinking). Raises `RequestError` for invalid messages and for any error in the template.
        """
        if self.source is None:
            message = "the model has no chat template: set chat_template, or send a plain prompt"
            raise RequestError(message, "messages")
        if add_generation_prompt and continue_final_message:
            message = "continue_final_message needs add_generation_prompt=False"
            raise RequestError(message, "continue_final_message")
        chat = checked_messages(
            messages,
            keeps_null=TESTS_NULL.search(self.source) is not None,
            keeps_parts=READS_PARTS.search(self.source) is not None,
            keeps_developer="developer" in self.source,
        )
        continued = _mark_end(messages[-1], chat[-1]) if continue_final_message else None
        values = {**self.special_tokens, **(variables or {}), "messages": chat, "tools": list(tools) if tools else None}
        text = self._render({**values, "add_generation_prompt": add_generation_prompt})
        return text if continued is None else _cut_at_mark(text, continued)

    def check(self) -> None:
        """Raises `RequestError` where the source is not valid jinja2."""
        try:
            self._compile()
        except Exception as error:
            raise RequestError(f"chat_template is not valid jinja: {error}"[:500], "chat_template") from error

    def _compile(self) -> Any:
        from jaxserve.text.template_sandbox import compile_template

        assert self.source is not None
        if len(self.source) > MAX_TEMPLATE_CHARS:
            raise ValueError(f"it is longer than {MAX_TEMPLATE_CHARS} characters")
        if self._compiled is None:
            self._compiled = compile_template(self.source)
        return self._compiled

    def _render(self, values: dict[str, Any]) -> str:
        from jaxserve.text.template_sandbox import render_bounded

        try:
            return render_bounded(self._compile(), values)
        except Exception as error:  # a template is a program and may raise anything
            reason = ADDRESS.sub("", f"{type(error).__name__}: {error}")[:500]
            raise RequestError(f"the chat template failed on these messages: {reason}", "messages") from error


def _mark_end(given: Mapping[str, Any], message: dict[str, Any]) -> str:
    """Appends the mark to the text of a checked message; returns the text without it."""
    if not given.get("content") and given.get("content") != "":
        raise RequestError("the final message has no content: it cannot be continued", "messages")
    holder, key = message, "content"
    if isinstance(message["content"], list):
        holder, key = cast(list[dict[str, Any]], message["content"])[-1], "text"
    text: str = holder[key]
    holder[key] = text + CONTINUED
    return text


def _cut_at_mark(text: str, continued: str) -> str:
    end = text.rfind(CONTINUED.rstrip())
    if end < 0 or continued.strip() not in text:
        raise RequestError("the chat template drops or changes the final message: it cannot be continued", "messages")
    return text[:end] if text.startswith(CONTINUED, end) else text[:end].rstrip()


def chat_template_from_folder(folder: str | Path) -> ChatTemplate:
    """The template in chat_template.jinja, else that in tokenizer_config.json (of several named ones, the default)."""
    folder = Path(folder)
    config = read_json(folder / "tokenizer_config.json")
    names = read_json(folder / "special_tokens_map.json") | config
    special_tokens = {name: text for name in SPECIAL_TOKENS if (text := token_text(names.get(name))) is not None}
    source: Any = config.get("chat_template")
    if isinstance(source, list):
        items = [cast(dict[str, Any], item) for item in cast(list[Any], source) if isinstance(item, dict)]
        source = {item.get("name"): item.get("template") for item in items}.get("default")
    if (path := folder / "chat_template.jinja").is_file():
        source = path.read_text(encoding="utf-8")
    return ChatTemplate(source if isinstance(source, str) else None, special_tokens)


def chat_template_from_gguf(metadata: Mapping[str, Any]) -> ChatTemplate:
    """The template in the metadata of a GGUF file, with the file's special tokens."""
    pieces = metadata.get("tokenizer.ggml.tokens", ())
    special_tokens: dict[str, str] = {}
    for name, key in zip(SPECIAL_TOKENS, ("bos", "eos", "unknown", "padding"), strict=True):
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None and 0 <= token_id < len(pieces):
            special_tokens[name] = str(pieces[token_id])
    source = metadata.get("tokenizer.chat_template")
    return ChatTemplate(None if source is None else str(source), special_tokens)
