"""Host: argparse types of the flags of `jaxserve bench serve`."""

import argparse
import json
import math
from pathlib import Path
from typing import Any, cast

from jaxserve.bench.serving.options import CHAT, COMPLETIONS, GOODPUT_METRICS, METRICS

ENDPOINTS = {"completions": COMPLETIONS, "chat": CHAT, COMPLETIONS: COMPLETIONS, CHAT: CHAT}
BACKENDS = {"vllm": COMPLETIONS, "openai": COMPLETIONS, "openai-chat": CHAT}
DAY_S = 86400
MAX_NAME_CHARS = 100


def endpoint(text: str) -> str:
    """The path of a route."""
    if text not in ENDPOINTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(ENDPOINTS)}")
    return ENDPOINTS[text]


def backend(text: str) -> str:
    """The path of a route, by vLLM's name of the back end."""
    if text not in BACKENDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(BACKENDS)}")
    return BACKENDS[text]


def file_name(text: str) -> str:
    """A file name without folders."""
    if Path(text).name != text or len(text) > MAX_NAME_CHARS or not text.isprintable():
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a file name without folders, at most {MAX_NAME_CHARS} characters"
        )
    return text


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} must be a finite number")
    return value


def seconds(text: str) -> float:
    """A time of up to a day."""
    if not 0 <= (value := number(text)) <= DAY_S:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds from 0 to {DAY_S}")
    return value


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found: Any = json.loads(text)
        json.dumps(found, allow_nan=False)  # NaN and infinities are not JSON, though Python reads them
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} must be a JSON object")
    return cast(dict[str, Any], found)


def concurrencies(text: str) -> tuple[int, ...]:
    """Different positive integers, separated by commas."""
    found = tuple(int(part) if part.isdecimal() else 0 for part in text.split(","))
    if 0 in found or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of requests, or different numbers such as 1,2,4,8")
    return found


def metrics(text: str) -> tuple[str, ...]:
    """Names of metrics, separated by commas."""
    found = tuple(text.split(","))
    if unknown := [name for name in found if name not in METRICS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(METRICS)}")
    return found


def percentiles(text: str) -> tuple[float, ...]:
    """Numbers from 0 to 100, separated by commas."""
    found = tuple(map(number, text.split(",")))
    if not all(0 <= value <= 100 for value in found):
        raise argparse.ArgumentTypeError(f"{text!r} must be numbers from 0 to 100")
    return found


def limit(text: str) -> tuple[str, float]:
    """A metric and its limit in milliseconds."""
    name, _, limit_ms = text.partition(":")
    if name not in GOODPUT_METRICS or (value := number(limit_ms)) < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be one of {', '.join(GOODPUT_METRICS)}, a colon and milliseconds"
        )
    return name, value
