"""Host: how the flags of `jaxserve bench serve` are read; each function is an argparse type."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from jaxserve.bench.serving.options import CHAT, COMPLETIONS, GOODPUT_METRICS, METRICS

ENDPOINTS = {"completions": COMPLETIONS, "chat": CHAT, COMPLETIONS: COMPLETIONS, CHAT: CHAT}
BACKENDS = {"vllm": COMPLETIONS, "openai": COMPLETIONS, "openai-chat": CHAT}
DAY_S = 86400
MAX_NAME_CHARS = 100


def endpoint(text: str) -> str:
    if text not in ENDPOINTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(ENDPOINTS)}")
    return ENDPOINTS[text]


def backend(text: str) -> str:
    if text not in BACKENDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(BACKENDS)}")
    return BACKENDS[text]


def file_name(text: str) -> str:
    if Path(text).name != text or len(text) > MAX_NAME_CHARS or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} must be a short name of a file, without folders")
    return text


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} must be a finite number")
    return value


def seconds(text: str) -> float:
    if not 0 <= (value := number(text)) <= DAY_S:
        raise argparse.ArgumentTypeError(f"{text!r} must be seconds, from 0 to {DAY_S}")
    return value


def json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
        json.dumps(found, allow_nan=False)  # NaN and infinities are no JSON, though Python reads them
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} must be a JSON object")
    return found


def concurrencies(text: str) -> tuple[int, ...]:
    found = tuple(int(part) if part.isdecimal() else 0 for part in text.split(","))
    if 0 in found or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of requests, or different ones as in 1,2,4,8")
    return found


def metrics(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if unknown := [name for name in found if name not in METRICS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(METRICS)}")
    return found


def percentiles(text: str) -> tuple[float, ...]:
    found = tuple(map(number, text.split(",")))
    if not all(0 <= value <= 100 for value in found):
        raise argparse.ArgumentTypeError(f"{text!r} must be numbers from 0 to 100")
    return found


def limit(text: str) -> tuple[str, float]:
    name, _, most = text.partition(":")
    if name not in GOODPUT_METRICS or (value := number(most)) < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be one of {', '.join(GOODPUT_METRICS)}, a colon and milliseconds"
        )
    return name, value
