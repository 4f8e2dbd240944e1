"""Host: `TOOL_CALL_FORMATS`: how models write calls of tools, by the names of vLLM's parsers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls import deepseek, hermes, llama3_json, mistral, phi4_mini, unmarked_calls
from jaxserve.text.tool_calls.call_list import CallList, new_call_id

AUTO, NONE = "auto", "none"


@dataclass(frozen=True, slots=True)
class ToolCallFormat:
    """parse: reads an answer. markers: texts that are special tokens of some models; they must then be part of the
    answer's text. new_id: makes the id of a call."""

    parse: Callable[[TextReader, CallList], Steps[None]]
    markers: tuple[str, ...] = ()
    new_id: Callable[[], str] = new_call_id


_HERMES = ToolCallFormat(hermes.hermes, (hermes.START, hermes.END))
_LLAMA = ToolCallFormat(llama3_json.llama3_json, (llama3_json.TAG,))
_PYTHON = ToolCallFormat(unmarked_calls.pythonic, (unmarked_calls.PYTHON_START, unmarked_calls.PYTHON_END))
_DEEPSEEK = ToolCallFormat(deepseek.deepseek, deepseek.MARKERS)
GENERIC = ToolCallFormat(unmarked_calls.json_answer)
TOOL_CALL_FORMATS: Mapping[str, ToolCallFormat] = {
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v31": _DEEPSEEK,
    "gemma": ToolCallFormat(unmarked_calls.gemma),
    "hermes": _HERMES,
    "json": GENERIC,
    "llama3_json": _LLAMA,
    "llama4_json": _LLAMA,
    "llama4_pythonic": _PYTHON,
    "mistral": ToolCallFormat(
        mistral.mistral, (mistral.START, mistral.CALL_ID, mistral.ARGUMENTS), mistral.mistral_call_id
    ),
    "phi4_mini_json": ToolCallFormat(phi4_mini.phi4_mini, (phi4_mini.START, phi4_mini.END)),
    "pythonic": _PYTHON,
}
# What templates of models with a format write, the surest first.
_SIGNS = (
    (deepseek.CALL_START, "deepseek_v3"),
    (mistral.START, "mistral"),
    (hermes.START, "hermes"),
    ("functools", "phi4_mini_json"),
    ("<|tool|>", "phi4_mini_json"),
    (unmarked_calls.PYTHON_START, "pythonic"),
    ("func_name1(", "pythonic"),
    (llama3_json.TAG, "llama3_json"),
    ("<start_of_turn>", "gemma"),
)
# Signs of formats that begin like one above and go on otherwise.
_OTHERS = ("<function=", "<arg_key>")


def format_of_template(source: str | None) -> str | None:
    """The name of the format that a chat template shows, "json" for one that shows none. None without a template,
    and for formats that are not known here."""
    if source is None or any(sign in source for sign in _OTHERS):
        return None
    return next((name for sign, name in _SIGNS if sign in source), "json")
