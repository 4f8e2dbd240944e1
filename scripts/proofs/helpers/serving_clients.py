"""The parts cancel, overload and fuzz: clients that disconnect, more clients than can be served, arbitrary bodies."""

import asyncio
import json
import random
import time
from collections import Counter
from itertools import islice
from typing import Any
from urllib.request import Request, urlopen

from scripts.proofs.helpers.served_model import served
from scripts.proofs.helpers.serving_row import (
    ADMIN,
    MODEL,
    NUM_SEQS,
    SIZES,
    Progress,
    Row,
    gauge,
    num_busy,
    until_quiet,
)
from tests.support.serving import fuzz_client
from tests.support.serving import overload as overloading
from tests.support.serving.body_fuzz import body_schemas, cases
from tests.support.serving.raw_http import ask

OPTIONS = ("--admin-key", ADMIN, "--max-num-waiting", "64", *SIZES)
ANSWER_LIMIT_S, REFUSAL_LIMIT_S = 5.0, 0.1
RATE, OVERLOAD_S, TIMES = 100.0, 10.0, 4.0
SHORT = {"prompt": "Once upon a time", "max_tokens": 8}


def cancel(size: float) -> list[Row]:
    number = round(200 * size)
    with served(MODEL, "--max-model-len", "512", *OPTIONS) as url:
        free = _num_free(url)
        left = asyncio.run(_cancel_all(url, number))
        answer = asyncio.run(ask(url, "/v1/completions", SHORT))
        quiet_s = until_quiet(url)
        found = f"{left} canceled before their end; answered in {answer.seconds:.2f} s; idle {quiet_s:.1f} s later"
        is_answered = answer.status == 200 and answer.seconds < ANSWER_LIMIT_S and left > number / 2
        return [
            Row(f"{number} requests canceled, then one more", found, f"answer in {ANSWER_LIMIT_S:.0f} s", is_answered),
            _quiet(url, free),
        ]


async def _cancel_all(url: str, number: int) -> int:
    """Number of requests canceled within eight seconds: while their body arrives, while they wait or while they run."""

    async def one(rng: random.Random) -> bool:
        streamed = {"stream": True} if rng.random() < 0.5 else {}
        params = {"max_tokens": 300, "ignore_eos": True, "n": rng.randint(1, 2)}
        body = {"prompt": "A long story: " * 10, **params, **streamed}
        await asyncio.sleep(8 * rng.random())
        try:
            async with asyncio.timeout(rng.choice((0.003, 0.5, 3.0)) * rng.random()):
                await ask(url, "/v1/completions", body)
        except TimeoutError:
            return True
        return False

    return sum(await asyncio.gather(*(one(random.Random(i)) for i in range(number))))


def overload(size: float) -> list[Row]:
    number, seconds = round(RATE * OVERLOAD_S * size), OVERLOAD_S * size
    with served(MODEL, "--max-model-len", "512", *OPTIONS) as url:
        free = _num_free(url)
        speed = asyncio.run(_tokens_per_s(url))
        num_tokens = max(1, round(speed / RATE * TIMES))
        times = RATE / (speed / num_tokens)
        found = asyncio.run(overloading.overload(url, number, seconds, lambda i: _body(i, num_tokens)))
        overloading.check_overloaded(found, num_tokens)
        until_quiet(url)
        counts = f"{len(found.accepted)} answered in full, {len(found.refused)} refused with 429 and Retry-After"
        p99_ms = 1000 * found.refused_p99_s if found.refused else float("inf")
        return [
            Row(
                f"{number} requests in {seconds:.0f} s, {times:.1f} times the capacity of {speed:.0f} tokens/s",
                f"{counts}; refusal p99 {p99_ms:.0f} ms after the body",
                f"each request answered or refused like this; p99 under {1000 * REFUSAL_LIMIT_S:.0f} ms",
                p99_ms < 1000 * REFUSAL_LIMIT_S and len(found.refused) > number / 4,
            ),
            _quiet(url, free),
        ]


def _body(i: int, num_tokens: int) -> dict[str, Any]:
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if i % 2 else {}
    return {"prompt": f"Number {i} is", "max_tokens": num_tokens, "ignore_eos": True, **streamed}


async def _tokens_per_s(url: str) -> float:
    """Throughput of the server in tokens/s with all slots occupied by closed-loop clients."""
    num_tokens, num_rounds = 16, 3

    async def client(i: int) -> None:
        for j in range(num_rounds):
            await ask(url, "/v1/completions", _body(num_rounds * i + j, num_tokens))

    await client(0)
    started_s = time.monotonic()
    await asyncio.gather(*(client(i) for i in range(NUM_SEQS)))
    return NUM_SEQS * num_rounds * num_tokens / (time.monotonic() - started_s)


def fuzz(size: float) -> list[Row]:
    number = round(2000 * size)
    with served(MODEL, "--max-model-len", "256", "--trust-request-chat-template", *OPTIONS) as url:
        free = _num_free(url)
        with urlopen(f"{url}/openapi.json", timeout=30) as answer:
            schemas = body_schemas(json.load(answer))
        wanted = islice(cases(schemas, seed=1), number)
        fuzzed = fuzz_client.fuzz(url, wanted, on_progress=Progress("cases", number))
        until_quiet(url)
        statuses = Counter[int]()
        for (_, status), count in fuzzed.statuses.items():
            statuses[status] += count
        by_status = ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))
        answer = asyncio.run(ask(url, "/v1/completions", SHORT))
        for fault in fuzzed.faults:
            print(fault)
        fields = sum(len(schema["properties"]) for schema in schemas.values())
        return [
            Row(
                f"{number} bodies from the {fields} fields of {len(schemas)} routes",
                f"by status {by_status}; {len(fuzzed.faults)} faults; then status {answer.status} for a valid request",
                "well-formed answers, refusals that name the field; 429 and 503 only from a full queue",
                not fuzzed.faults and answer.status == 200 and fuzzed.num_accepted > number / 4,
            ),
            _quiet(url, free),
        ]


def _num_free(url: str) -> int:
    """Number of free pages after the prefix cache is cleared."""
    with urlopen(Request(f"{url}/reset_prefix_cache", b"", {"Authorization": f"Bearer {ADMIN}"}), timeout=30):
        return int(gauge(url, "jaxserve:kv_pages", state="free"))


def _quiet(url: str, free: int) -> Row:
    busy, now = num_busy(url), _num_free(url)
    found = f"{busy} running or waiting; {now} of {free} pages free"
    return Row("afterwards", found, "0 requests; all pages free", (busy, now) == (0, free))
