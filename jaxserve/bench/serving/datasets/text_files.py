"""Host: datasets of files that hold prompts: a line each, or conversations as ShareGPT exported them."""

import json
from pathlib import Path
from typing import Any

from jaxserve.bench.offline.prompt_file import read_prompt_file
from jaxserve.bench.serving.datasets.request_specs import Dataset, Draw, RequestSpec
from jaxserve.bench.serving.options import CustomOptions, ShareGPTOptions
from jaxserve.core.errors import RequestError
from jaxserve.engine.inputs.prompt import Prompt

HUMAN = ("human", "user")


def custom(options: CustomOptions, path: Path) -> Dataset:
    """See `prompt_file`."""
    entries = read_prompt_file(path)
    return _in_order([RequestSpec(prompt, n or options.custom_output_len) for prompt, n in entries], path)


def sharegpt(options: ShareGPTOptions, path: Path) -> Dataset:
    """A JSON list of objects with `conversations`, lists of {from, value}: those that a human begins and another goes
    on with. Raises `RequestError` where the file is none of it."""
    try:
        found = json.loads(path.read_text("utf-8"))
        drafts = [draft for entry in found if (draft := _first_turn(entry["conversations"], options)) is not None]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RequestError(
            f"{path} is not a JSON list of objects with conversations, lists of objects with from and value",
            "dataset_path",
        ) from None
    return _in_order(drafts, path)


def _first_turn(turns: list[dict[str, Any]], options: ShareGPTOptions) -> RequestSpec | None:
    if len(turns) < 2 or turns[0]["from"] not in HUMAN or turns[1]["from"] in HUMAN:
        return None
    prompt, answer = turns[0]["value"], turns[1]["value"]
    if not isinstance(prompt, str) or not isinstance(answer, str):
        raise TypeError
    return RequestSpec(Prompt(prompt, None), options.sharegpt_output_len or answer) if prompt and answer else None


def _in_order(drafts: list[RequestSpec], path: Path) -> Dataset:
    """The first ones, in every run; the warm-up takes the last ones, which are not sent again if there are enough."""

    def draw(wanted: Draw) -> list[RequestSpec]:
        count = wanted.count_of(len(drafts), path)
        return drafts[-count:] if wanted.run == 0 else drafts[:count]

    return draw
