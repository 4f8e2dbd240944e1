"""The parts stream and batch: streamed answers equal whole answers, an interrupted batch equals an uninterrupted one.

Both run in float32 with `batch_invariant`, so the engine's outputs do not depend on how requests are batched.
"""

import asyncio
import json
import tempfile
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
    equal = sum(whole == streamed for whole, streamed in pairs)
    choices = [choice for whole, _ in pairs for choice in whole["choices"]]
    num_wide = sum(not text.isascii() for _, text, *_ in choices)
    num_stopped = sum(isinstance(stop, str) for *_, stop, _ in choices)
    counts = f"{len(choices)} texts, {num_wide} of them multi-byte, {num_stopped} ended by a stop string"
    is_hard = num_wide >= len(choices) / 4 and num_stopped >= len(choices) / 10
    what = f"{number} prompts, completions and chats, with stop strings, streamed and not streamed"
    wanted = "equal texts, tokens, finish reasons and usage for all"
    return [Row(what, f"{equal} equal: {counts}", wanted, equal == number and is_hard)]


async def _both(url: str, i: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The i-th request's answer, not streamed and streamed."""
    path, body = _request(i)
    whole, streamed = await asyncio.gather(
        ask(url, path, body), ask(url, path, {**body, "stream": True, "stream_options": {"include_usage": True}})
    )
    return _from_whole(whole), _from_stream(streamed)


def _request(i: int) -> tuple[str, dict[str, Any]]:
    """Path and body of the i-th request."""
    topic, stop = TOPICS[i % len(TOPICS)], STOPS[i // len(TOPICS) % len(STOPS)]
    body = {"stop": stop, "max_tokens": 48, "n": 1 + i % 2, "seed": i, "temperature": 1.2, "return_token_ids": True}
    if i % 2:
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": topic}], **body}
    return "/v1/completions", {"prompt": topic, **body}


def _from_whole(answer: Answer) -> dict[str, Any]:
    """Index, text, finish reason, stop reason and tokens of each choice; usage without the cached tokens."""
    choices = [
        (choice["index"], _text(choice, "message"), choice["finish_reason"], choice["stop_reason"], choice["token_ids"])
        for choice in answer.json["choices"]
    ]
    return {"choices": choices, "usage": _usage(answer.json)}


def _from_stream(answer: Answer) -> dict[str, Any]:
    """The same fields, assembled from the chunks of a stream."""
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
    with tempfile.TemporaryDirectory() as folder:
        source, whole, killed = (Path(folder, name) for name in ("in.jsonl", "whole.jsonl", "killed.jsonl"))
        batch_kill.written(source, [_request(i)[1] for i in range(number)], lambda i: _request(i)[0])
        options = ("--model", MODEL, *EXACT)
        batch_kill.run(source, whole, *options)
        counts = [batch_kill.kill_at(round(number * share), source, killed, *options) for share in (0.2, 0.6)]
        kept = killed.read_bytes()
        batch_kill.run(source, killed, *options)
        is_kept = killed.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
        expected, found = batch_kill.answers(whole), batch_kill.answers(killed)
        num_failed = sum(json.loads(line)["error"] is not None for line in killed.read_text().splitlines())
    num_equal = sum(found.get(name) == answer for name, answer in expected.items())
    result = f"killed after {counts[0]} and {counts[1]} lines; then {len(found)} answered, {num_equal} equal"
    holds = is_kept and len(found) == len(expected) == num_equal == number and not num_failed
    wanted = "all answered once, equal to an uninterrupted run"
    return [Row(f"a batch of {number} lines, killed twice (SIGKILL)", result, wanted, holds)]
