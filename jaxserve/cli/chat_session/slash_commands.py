"""Host: the slash commands of a chat, such as /set and /retry."""

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxserve.cli.chat_session.conversation import NOT_IN_CHAT, Conversation
from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams

_SETTING = re.compile(r"([\w-]+)(?:\s*=\s*|\s+|$)(.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class CommandResult:
    """text: to show. pieces: an answer to show as it arrives. is_end: the chat ends."""

    text: str = ""
    pieces: Iterator[str] | None = None
    is_end: bool = False


def run_command(conversation: Conversation, line: str) -> CommandResult:
    """Runs one command line; raises `RequestError` for an unknown or impossible command, `OSError` for files."""
    name, _, argument = line.removeprefix("/").partition(" ")
    name = ALIASES.get(name, name)
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean /{close[0]}?" if close else "/help lists all; to send it as text, begin with a space"
        raise RequestError(f"there is no command /{name}: {hint}")
    return COMMANDS[name][2](conversation, argument.strip())


def _help(_: Conversation, __: str) -> CommandResult:
    rows = [(f"/{name} {usage}".strip(), text) for name, (usage, text, _) in COMMANDS.items()]
    rows += [('""" ... """', "a message of several lines; or end a line with \\")]
    rows += [("Ctrl-C", "stop the answer; twice at the prompt: exit"), ("Ctrl-D", "exit")]
    return CommandResult("\n".join(f"  {left:<20} {right}" for left, right in rows))


def _exit(_: Conversation, __: str) -> CommandResult:
    return CommandResult(is_end=True)


def _reset(conversation: Conversation, _: str) -> CommandResult:
    conversation.reset()
    return CommandResult("All turns are removed.")


def _system(conversation: Conversation, text: str) -> CommandResult:
    if text:
        conversation.system = None if text == "-" else text
        return CommandResult("The system message applies from the next answer on.")
    return CommandResult(conversation.system if conversation.system is not None else "There is no system message.")


def _set(conversation: Conversation, argument: str) -> CommandResult:
    if not argument:
        return CommandResult("\n".join(_settings(conversation.params)))
    found = _SETTING.fullmatch(argument)
    if not found:
        raise RequestError("name a parameter and its value: /set temperature 0.7")
    name = found[1].replace("-", "_")
    conversation.set(name, _value(found[2]))
    return CommandResult(f"{name} = {getattr(conversation.params, name)}")


def _settings(params: SamplingParams) -> Iterator[str]:
    for field in dataclasses.fields(params):
        if field.name not in NOT_IN_CHAT:
            yield f"  {field.name:<30} {getattr(params, field.name)}"


def _value(text: str) -> Any:
    """A JSON value, a constant in Python's spelling, or the text itself."""
    try:
        return json.loads({"None": "null", "none": "null", "True": "true", "False": "false"}.get(text, text))
    except (ValueError, RecursionError):
        if not text:
            raise RequestError("the value is missing: /set temperature 0.7") from None
        return text


def _save(conversation: Conversation, argument: str) -> CommandResult:
    conversation.save(_path(argument, "/save FILE"))
    return CommandResult(f"Saved {len(conversation.messages)} messages.")


def _load(conversation: Conversation, argument: str) -> CommandResult:
    conversation.load(_path(argument, "/load FILE"))
    return CommandResult(f"Loaded {len(conversation.messages)} messages.")


def _path(argument: str, usage: str) -> Path:
    if not argument:
        raise RequestError(f"name a file: {usage}")
    return Path(argument).expanduser()


def _retry(conversation: Conversation, _: str) -> CommandResult:
    return CommandResult(pieces=conversation.retry())


def _undo(conversation: Conversation, _: str) -> CommandResult:
    return CommandResult(f"Removed: {conversation.undo()}")


def _stats(conversation: Conversation, _: str) -> CommandResult:
    last = conversation.last
    if last is None:
        raise RequestError("there is no answer yet")
    speed = "" if last.tokens_per_s is None else f", then {last.tokens_per_s:.1f} tokens/s"
    return CommandResult(
        f"{last.num_prompt_tokens} prompt tokens, {last.num_tokens} generated tokens: "
        f"the first after {last.first_token_s:.2f} s{speed}"
    )


Command = Callable[[Conversation, str], CommandResult]
COMMANDS: dict[str, tuple[str, str, Command]] = {
    "help": ("", "show this list", _help),
    "exit": ("", "end the chat (also /quit)", _exit),
    "reset": ("", "remove all turns (also /clear)", _reset),
    "system": ("TEXT", "set the system message; - for none; without TEXT, show it", _system),
    "set": ("NAME VALUE", "set a sampling parameter, such as /set temperature 0.7; alone, show all", _set),
    "retry": ("", "answer the last question again", _retry),
    "undo": ("", "remove the last question and its answer", _undo),
    "stats": ("", "show tokens and speed of the last answer", _stats),
    "save": ("FILE", "write all messages as JSON", _save),
    "load": ("FILE", "continue from saved messages", _load),
}
ALIASES = {"quit": "exit", "clear": "reset"}
