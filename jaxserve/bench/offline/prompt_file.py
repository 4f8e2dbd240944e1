"""Host: `read_prompt_file`: reads the prompts of a file, one per line."""

import json
from pathlib import Path
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.core.utf8_texts import read_utf8
from jaxserve.engine.inputs.prompt import Prompt, read_prompt


def read_prompt_file(path: Path, num_prompts: int | None = None) -> list[tuple[Prompt, int | None]]:
    """The first `num_prompts` prompts, or all, each with its output length where the file has it.

    A line is a text, or in .jsonl files a JSON object with `prompt` or `prompt_token_ids` and optionally `output_len`.
    Raises `RequestError` with the invalid line, and for a file that is not UTF-8.
    """
    lines = [line for line in read_utf8(path).split("\n") if line.strip()][:num_prompts]
    if len(lines) < (num_prompts or 1):
        raise RequestError(f"{path} has {len(lines)} prompts: lower --num-prompts={num_prompts or 1}", "num_prompts")
    if path.suffix != ".jsonl":
        return [(Prompt(line, None), None) for line in lines]
    return [_entry(line, f"{path}, prompt {i}") for i, line in enumerate(lines)]


def _entry(line: str, name: str) -> tuple[Prompt, int | None]:
    try:
        entry: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise RequestError(f"{name} is not JSON ({error}); files without the suffix .jsonl are read as text") from None
    output_len: Any = cast(dict[str, Any], entry).pop("output_len", None) if isinstance(entry, dict) else None
    is_count = isinstance(output_len, int) and not isinstance(output_len, bool) and output_len >= 1
    if output_len is not None and not is_count:
        raise RequestError(f"{name}: output_len={output_len!r} must be an integer of at least 1", "output_len")
    return read_prompt(entry, name), output_len
