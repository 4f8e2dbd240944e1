"""Host: `TOOL_CALL_FORMATS`: how models write calls of tools, by the names of vLLM's parsers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls import (
    deepseek_calls,
    hermes_calls,
    llama3_calls,
    mistral_calls,
    phi4_mini_calls,
    unmarked_calls,
)
from jaxserve.text.tool_calls.call_list import CallList, new_call_id


@dataclass(frozen=True, slots=True)
class ToolCallFormat:
    """parse: reads an answer. markers: texts that are special tokens of some models; they must then be part of the
    answer's text. new_id: makes the id of a call."""

    parse: Callable[[TextReader, CallList], Steps[None]]
    markers: tuple[str, ...] = ()
    new_id: Callable[[], str] = new_call_id


_HERMES = ToolCallFormat(hermes_calls.hermes, (hermes_calls.START, hermes_calls.END))
_LLAMA = ToolCallFormat(llama3_calls.llama3_json, (llama3_calls.TAG,))
_PYTHON = ToolCallFormat(unmarked_calls.pythonic, (unmarked_calls.PYTHON_START, unmarked_calls.PYTHON_END))
_DEEPSEEK = ToolCallFormat(deepseek_calls.deepseek, deepseek_calls.MARKERS)
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
        mistral_calls.mistral,
        (mistral_calls.START, mistral_calls.CALL_ID, mistral_calls.ARGUMENTS),
        mistral_calls.mistral_call_id,
    ),
    "phi4_mini_json": ToolCallFormat(phi4_mini_calls.phi4_mini, (phi4_mini_calls.START, phi4_mini_calls.END)),
    "pythonic": _PYTHON,
}
# What templates of models with a format write, the surest first.
_SIGNS = (
    (deepseek_calls.CALL_START, "deepseek_v3"),
    (mistral_calls.START, "mistral"),
    (hermes_calls.START, "hermes"),
    ("functools", "phi4_mini_json"),
    ("<|tool|>", "phi4_mini_json"),
    (phi4_mini_calls.START, "phi4_mini_json"),  # Granite's, too
    (unmarked_calls.PYTHON_START, "pythonic"),
    ("func_name1(", "pythonic"),
    (llama3_calls.TAG, "llama3_json"),
    ("<start_of_turn>", "gemma"),
)
# Signs of formats that are not known here: of Qwen 3 Coder, GLM, Gemma 4, gpt-oss, Kimi, DeepSeek V3.2 and others.
_OTHERS = (
    "<function=",
    "<arg_key>",
    "<|tool_call>",
    "<start_function_call>",
    "<|channel|>",
    "<|tool_call_begin|>",
    "<minimax:tool_call>",
    "<seed:tool_call>",
    "｜DSML｜",
    "<|START_ACTION|>",
    "<|action_start|>",
    "<function_calls>",
    "<tool_calls>",
    "<TOOLCALL>",
)


def format_of_template(source: str | None) -> str | None:
    """The name of the format that a chat template shows, "json" for one that shows none. None without a template,
    and for formats that are not known here."""
    if source is None or any(sign in source for sign in _OTHERS):
        return None
    return next((name for sign, name in _SIGNS if sign in source), "json")
