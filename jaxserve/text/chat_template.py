"""Host: `ChatTemplate`: renders a list of messages to the prompt text that a model was trained on."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any, cast

from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.text.chat_messages import checked_messages
from jaxserve.text.folder_json import read_json, token_text
from jaxserve.text.gguf_fields import GgufFields
from jaxserve.text.message_schema import conversation_schema
from jaxserve.text.user_text import user_text

MAX_TEMPLATE_CHARS = 1 << 20
CONTINUED = "\ue000the final message ends here\ue000 "  # its final space shows whether the template trims
TESTS_NULL = re.compile(r"\bcontent['\"\])]*\s+is\s+(not\s+)?none", re.IGNORECASE)  # not reasoning_content
READS_PARTS = re.compile(r"\{%-?\s*for\s+\w+\s+in\s+[\w.\[\]'\"]*\bcontent\b['\"\])]*\s*(-?%\}|\||if\b)")
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # as Python writes an object: errors go to clients, who need not learn it
THINKING = ("enable_thinking", "thinking")  # variables by which templates switch reasoning on
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
MODELS_OWN = "the model's chat template"


@dataclass(frozen=True, slots=True)
class _Compiled:
    """template: jinja2's. schema: of the messages that it renders. constants: the texts in its expressions. variables:
    the names that it reads. joins_arguments: it takes the arguments of calls as text."""

    template: Any
    schema: dict[str, Any]
    constants: frozenset[str]
    variables: frozenset[str]
    joins_arguments: bool


class ChatTemplate:
    """One model's template.

    source: jinja2 text, None for a model without a template. special_tokens: bos_token and so on. name: how errors call
    it.
    """

    def __init__(self, source: str | None, special_tokens: Mapping[str, str] | None = None, *, name: str = MODELS_OWN):
        self.source, self.name = source, name
        self.special_tokens = dict(special_tokens or {})
        self._compiled: _Compiled | None = None

    def with_source(self, source: str, name: str) -> "ChatTemplate":
        """Another template with this model's special tokens."""
        return ChatTemplate(source, self.special_tokens, name=name)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
        reasoning_effort: str | None = None,
        plain_tokens: Sequence[str] = (),
    ) -> str:
        """The prompt with its special tokens as text: encode it with add_special_tokens=False.

        messages: of the roles and fields of `conversation_schema`, and others that the template reads.
        add_generation_prompt: end with the header of the assistant's answer. continue_final_message: end inside the
        last message, which the model continues; not together with add_generation_prompt. variables: the template's own
        (such as enable_thinking). plain_tokens: special tokens that stay text where messages, tools and variables spell
        them; the result then has the marks of `UserText`. Raises `RequestError` for invalid messages, for tools or an
        effort that the template does not read, and for any error in the template.

        reasoning_effort: a variable of some templates; others read one of `THINKING`, which "none" makes false.
        """
        if self.source is None:
            message = "the model has no chat template: set chat_template, or send a plain prompt"
            raise RequestError(message, "messages")
        if add_generation_prompt and continue_final_message:
            message = "continue_final_message needs add_generation_prompt=False"
            raise RequestError(message, "continue_final_message")
        compiled = self._compile()
        chat = checked_messages(
            messages,
            compiled.schema,
            keeps_null=TESTS_NULL.search(self.source) is not None,
            keeps_parts=READS_PARTS.search(self.source) is not None,
            keeps_developer="developer" in self.source,
            keeps_arguments=compiled.joins_arguments,
        )
        if tools and "tools" not in compiled.variables:
            raise RequestError(f"{self.name} does not show tools: leave them out, or set a template that does", "tools")
        effort = {} if reasoning_effort is None else self._effort(reasoning_effort, compiled)
        given: dict[str, Any] = {**(variables or {}), **effort}
        given |= {"messages": chat, "tools": list(tools) if tools else None}
        if plain_tokens:
            try:
                given = user_text(tuple(plain_tokens), compiled.constants).marked(given)
            except RecursionError:
                raise RequestError("messages, tools or variables of the template are nested too deeply") from None
            chat = given["messages"]
        continued = _mark_end(chat[-1]) if continue_final_message else None
        values = {**self.special_tokens, **given}
        text = self._render(compiled.template, {**values, "add_generation_prompt": add_generation_prompt}, chat)
        return text if continued is None else _cut_at_mark(text, continued, self.name)

    def _effort(self, effort: str, compiled: _Compiled) -> dict[str, Any]:
        """The variables by which the template learns of the effort."""
        values = {"reasoning_effort": effort, **dict.fromkeys(THINKING, effort != "none")}
        found = {name: value for name, value in values.items() if name in compiled.variables}
        if not found:
            message = f"{self.name} reads none of {', '.join(values)}: leave reasoning_effort out"
            raise RequestError(message, "reasoning_effort")
        return found

    def check(self) -> None:
        """Raises `RequestError` where the source is not valid jinja2."""
        self._compile()

    def _compile(self) -> _Compiled:
        from jaxserve.text import template_reads as reads
        from jaxserve.text.template_sandbox import compile_tree, parse_template

        assert self.source is not None
        if self._compiled is None:
            if len(self.source) > MAX_TEMPLATE_CHARS:
                message = f"{self.name} is longer than {MAX_TEMPLATE_CHARS} characters"
                raise RequestError(message, "chat_template")
            try:
                tree = parse_template(self.source)
                schema = conversation_schema(reads.compared_constants(tree), reads.message_fields(tree))
                facts = reads.constants(tree), reads.variables(tree), reads.joins_arguments(tree)
                self._compiled = _Compiled(compile_tree(tree), schema, *facts)
            except Exception as error:
                line = getattr(error, "lineno", None)  # of a syntax error
                place = "" if line is None else f" (line {line})"
                message = f"{self.name} is not valid jinja{place}: {error}"[:500]
                raise RequestError(message, "chat_template") from error
        return self._compiled

    def _render(self, template: Any, values: dict[str, Any], chat: list[dict[str, Any]]) -> str:
        from jaxserve.text.template_sandbox import Rendering

        rendering = Rendering.of(chat)
        try:
            return rendering.text(template, values)
        except Exception as error:  # a template is a program and may raise anything
            place = "messages" if rendering.message is None else f"messages[{rendering.message}]"
            reason = ADDRESS.sub("", f"{type(error).__name__}: {error}")
            raise RequestError(f"{self.name} failed at {place}{_line_of(error)}: {reason}"[:500], place) from error


def _line_of(error: Exception) -> str:
    """The line of the template that raised, as in " (line 12)"; jinja2 writes it into the traceback."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == "<template>"]
    return f" (line {lines[-1]})" if lines else ""


def _mark_end(message: dict[str, Any]) -> str:
    """Appends the mark to the text of a checked message; returns the text without it."""
    if not message["content"]:
        raise RequestError("the final message has no content: it cannot be continued", "messages")
    holder, key = message, "content"
    if isinstance(message["content"], list):
        holder, key = cast(list[dict[str, Any]], message["content"])[-1], "text"
    text: str = holder[key]
    holder[key] = text + CONTINUED
    return text


def _cut_at_mark(text: str, continued: str, name: str) -> str:
    end = text.rfind(CONTINUED.rstrip())
    if end < 0 or continued.strip() not in text:
        raise RequestError(f"{name} drops or changes the final message: it cannot be continued", "messages")
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
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}", "chat_template") from None
    return ChatTemplate(source if isinstance(source, str) else None, special_tokens)


def chat_template_from_gguf(metadata: Mapping[str, Any]) -> ChatTemplate:
    """The template in the metadata of a GGUF file, with the file's special tokens."""
    fields, special_tokens = GgufFields(metadata), dict[str, str]()
    pieces = fields.texts("tokens") or []
    for name, key in zip(SPECIAL_TOKENS, ("bos", "eos", "unknown", "padding"), strict=True):
        if (token_id := fields.token_id(key, len(pieces))) is not None:
            special_tokens[name] = pieces[token_id]
    source = metadata.get("tokenizer.chat_template")
    if source is not None and not isinstance(source, str):
        raise ConfigError("tokenizer.chat_template in the GGUF file must be text", "chat_template")
    return ChatTemplate(source, special_tokens)
