"""Host: datasets in files: one prompt per line, or conversations in ShareGPT's format."""

import json
from pathlib import Path
from typing import Any

from jaxserve.bench.offline.prompt_file import read_prompt_file
from jaxserve.bench.serving.datasets.request_specs import Dataset, RequestSpec, Selection
from jaxserve.bench.serving.options import CustomOptions, ShareGPTOptions
from jaxserve.core.errors import RequestError
from jaxserve.engine.inputs.prompt import Prompt

HUMAN = ("human", "user")


def custom(options: CustomOptions, path: Path) -> Dataset:
    """A file of prompts; see `prompt_file`."""
    entries = read_prompt_file(path)
    return _in_order([RequestSpec(prompt, n or options.custom_output_len) for prompt, n in entries], path)


def sharegpt(options: ShareGPTOptions, path: Path) -> Dataset:
    """A JSON list of objects with `conversations`, lists of {from, value}.

    Uses the conversations that begin with a turn of a human and an answer. Raises `RequestError` where the file has
    another format.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
        specs = [spec for entry in found if (spec := _first_turn(entry["conversations"], options)) is not None]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RequestError(
            f"{path} is not a JSON list of objects with conversations, lists of objects with from and value",
            "dataset_path",
        ) from None
    return _in_order(specs, path)


def _first_turn(turns: list[dict[str, Any]], options: ShareGPTOptions) -> RequestSpec | None:
    if len(turns) < 2 or turns[0]["from"] not in HUMAN or turns[1]["from"] in HUMAN:
        return None
    prompt, answer = turns[0]["value"], turns[1]["value"]
    if not isinstance(prompt, str) or not isinstance(answer, str):
        raise TypeError
    return RequestSpec(Prompt(prompt, None), options.sharegpt_output_len or answer) if prompt and answer else None


def _in_order(specs: list[RequestSpec], path: Path) -> Dataset:
    """The first requests in every run; the warm-up takes the last ones, which a large file does not send again."""

    def draw(selection: Selection) -> list[RequestSpec]:
        count = selection.count_of(len(specs), path)
        return specs[-count:] if selection.run == 0 else specs[:count]

    return draw
