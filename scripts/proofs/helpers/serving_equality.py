"""What must not differ: an answer streamed and not, a batch killed and not. The parts stream and batch.

Both in float32 and batch-invariant, so that the engine itself says the same however requests come together.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.proofs.helpers.served_model import served
from scripts.proofs.helpers.serving_row import MODEL, SIZES, Row
from tests.support.processes import batch_kill
from tests.support.serving.raw_http import Answer, ask

EXACT = ("--dtype", "float32", "--batch-invariant", "--max-model-len", "512", *SIZES)
TOPICS = (
    "Les cafés de Paris où l'été", "Größe und Maß: für über", "日本語の文章を書きます。",
    "Пишите по-русски, пожалуйста:", "한국어로 이야기해 주세요:", "emoji 😀🎉👩\u200d👩\u200d👧 and more:", 
    "El niño y la señora, ¿qué", "Ελληνικά γράμματα:", "naïve façade — “quotes”", "The capital of France is",
)  # fmt: skip
STOPS: tuple[Any, ...] = (None, " the", ["é", "ü", "。"], ["\n", " and", "😀"], [", ", "\u200d"])


def stream(size: float) -> list[Row]:
    number = round(50 * size)
    with served(MODEL, *EXACT) as url:
        pairs = [asyncio.run(_both(url, i)) for i in range(number)]
    equal = sum(told == streamed for told, streamed in pairs)
    choices = [choice for told, _ in pairs for choice in told["choices"]]
    num_wide = sum(not text.isascii() for _, text, *_ in choices)
    num_stopped = sum(isinstance(stop, str) for *_, stop, _ in choices)
    shown = f"{len(choices)} texts, {num_wide} of them multi-byte, {num_stopped} ended by a stop string"
    is_hard = num_wide >= len(choices) / 4 and num_stopped >= len(choices) / 10
    what = f"{number} prompts, completions and chats, with stop strings, streamed and not"
    return [
        Row(what, f"{equal} equal: {shown}", "texts, tokens, reasons and usage of all", equal == number and is_hard)
    ]


async def _both(url: str, i: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the i-th request is told in one piece and in many."""
    path, body = _asked(i)
    whole, streamed = await asyncio.gather(
        ask(url, path, body), ask(url, path, {**body, "stream": True, "stream_options": {"include_usage": True}})
    )
    return _told(whole), _joined(streamed)


def _asked(i: int) -> tuple[str, dict[str, Any]]:
    topic, stop = TOPICS[i % len(TOPICS)], STOPS[i // len(TOPICS) % len(STOPS)]
    body = {"stop": stop, "max_tokens": 48, "n": 1 + i % 2, "seed": i, "temperature": 1.2, "return_token_ids": True}
    if i % 2:
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": topic}], **body}
    return "/v1/completions", {"prompt": topic, **body}


def _told(answer: Answer) -> dict[str, Any]:
    """Index, text, finish reason, stop reason and tokens of each choice; usage but for what the cache knew."""
    choices = [
        (choice["index"], _text(choice, "message"), choice["finish_reason"], choice["stop_reason"], choice["token_ids"])
        for choice in answer.json["choices"]
    ]
    return {"choices": choices, "usage": _usage(answer.json)}


def _joined(answer: Answer) -> dict[str, Any]:
    """The same of a stream."""
    texts: dict[int, str] = {}
    tokens: dict[int, list[int]] = {}
    ends: dict[int, tuple[Any, Any]] = {}
    *chunks, last = answer.events
    for chunk in chunks:
        for choice in chunk["choices"]:
            index = choice["index"]
            texts[index] = texts.get(index, "") + _text(choice, "delta")
            tokens.setdefault(index, []).extend(choice.get("token_ids") or [])
            if choice["finish_reason"] is not None:
                ends[index] = choice["finish_reason"], choice["stop_reason"]
    choices = [(index, texts[index], *ends[index], tokens[index]) for index in sorted(ends)]
    return {"choices": choices, "usage": _usage(last)}


def _text(choice: dict[str, Any], name: str) -> str:
    return choice["text"] if "text" in choice else choice[name]["content"]


def _usage(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: count for name, count in answer["usage"].items() if name != "prompt_tokens_details"}


def batch(size: float) -> list[Row]:
    number = round(300 * size)
    url: Callable[[int], str] = lambda i: _asked(i)[0]  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        source, whole, killed = (Path(folder, name) for name in ("in.jsonl", "whole.jsonl", "killed.jsonl"))
        batch_kill.written(source, [_asked(i)[1] for i in range(number)], url)
        options = ("--model", MODEL, *EXACT)
        batch_kill.run(source, whole, *options)
        counts = [batch_kill.kill_at(round(number * share), source, killed, *options) for share in (0.2, 0.6)]
        kept = killed.read_bytes()
        batch_kill.run(source, killed, *options)
        is_kept = killed.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
        expected, found = batch_kill.answers(whole), batch_kill.answers(killed)
        num_failed = sum(json.loads(line)["error"] is not None for line in killed.read_text().splitlines())
    num_equal = sum(found.get(name) == answer for name, answer in expected.items())
    told = f"killed with {counts[0]} and {counts[1]} lines written; then {len(found)} answered, {num_equal} equal"
    holds = is_kept and len(found) == len(expected) == num_equal == number and not num_failed
    return [Row(f"a batch of {number} lines, killed (9) twice", told, "all, none twice, as in one go", holds)]
