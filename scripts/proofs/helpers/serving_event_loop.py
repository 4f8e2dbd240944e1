"""The part loop: how long the server's event loop is blocked while a long prompt arrives.

A task in the event loop of `jaxserve serve` wakes up every two milliseconds; the delay of a wake-up is the delay that
another client's request would have seen. Time spent waiting for a CPU core, on which the model computes, is reported
separately, because the server does not cause it. Request bodies are built and sent by a separate process.
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from pathlib import Path
from typing import Any
from unittest import mock

from scripts.proofs.helpers.served_model import served
from scripts.proofs.helpers.serving_row import MODEL, SIZES, Row
from tests.support.golden_tokenizers import tokenizer_of

ROOT = Path(__file__).parents[3]
PERIOD_S, LIMIT_S = 0.002, 0.02
NUM_TOKENS = 100_000
LONG_CONTEXT = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 49152,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": True,
    "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
}  # fmt: skip
COMMAND = (sys.executable, "-c", "from scripts.proofs.helpers.serving_event_loop import serve; serve()")


def loop(size: float) -> list[Row]:
    """SmolLM2 (context of 8,192) refuses, truncates and tokenizes the prompt; a small model (131,072) computes it."""
    text, ids = _prompt(round(NUM_TOKENS * size))
    chat = {"messages": [{"role": "user", "content": text}]}
    truncated = {"truncate_prompt_tokens": 100, "max_tokens": 4}
    refused = {
        "nothing": None,
        "text, refused": ("/v1/completions", {"prompt": text}),
        "token ids, refused": ("/v1/completions", {"prompt": ids}),
        "a chat, refused": ("/v1/chat/completions", chat),
        "text, truncated to 100 tokens": ("/v1/completions", {"prompt": text, **truncated}),
        "token ids, truncated": ("/v1/completions", {"prompt": ids, **truncated}),
        "text to /tokenize": ("/tokenize", {"prompt": text}),
        "text to /tokenize, with token strings": ("/tokenize", {"prompt": text, "return_token_strs": True}),
        "token ids to /detokenize": ("/detokenize", {"tokens": ids}),
        "text to /v1/embeddings, truncated": ("/v1/embeddings", {"input": text, "truncate_prompt_tokens": 100}),
    }
    uncached = {"max_tokens": 4, "skip_reading_prefix_cache": True}
    computed = {
        "text, computed": ("/v1/completions", {"prompt": text, **uncached}),
        "token ids, computed, streamed": ("/v1/completions", {"prompt": ids, "stream": True, **uncached}),
    }
    rows = _measured(refused, 5, MODEL, "--max-model-len", "8192", *SIZES)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(LONG_CONTEXT))
        tokenizer_of(MODEL).backend.save(str(Path(folder, "tokenizer.json")))
        options = ("--load-format", "dummy", "--max-model-len", "131072", "--max-num-seqs", "4")
        shapes = ("--max-num-batched-tokens", "2048", "--buckets", "4 2048x4", "--num-pages", "9000")
        rows += _measured(computed, 3, folder, *options, *shapes)
    return rows


def _prompt(num_tokens: int) -> tuple[str, list[int]]:
    """Random words from docs/design.md, as text and as token ids."""
    words, rng, tokenizer = Path(ROOT, "docs/design.md").read_text().split(), random.Random(0), tokenizer_of(MODEL)
    ids = tokenizer.encode(" ".join(rng.choice(words) for _ in range(num_tokens)))[:num_tokens]
    return tokenizer.decode(ids), ids


def _measured(cases: dict[str, Any], num_times: int, model: str, *options: str) -> list[Row]:
    """One row per case: the longest delay of each repetition, and the HTTP status."""
    with tempfile.TemporaryDirectory() as folder:
        wake_up_file = Path(folder, "wake_ups.json")
        spans: dict[str, list[tuple[float, float, int]]] = {name: [] for name in cases}
        with served(model, *options, command=(*COMMAND, str(wake_up_file))) as url:
            for _ in range(num_times):
                for name, case in cases.items():
                    spans[name].append(_span(url, *case) if case else _pause())
                    time.sleep(0.1)
        wake_ups = json.loads(wake_up_file.read_text())
    rows, moments = [], [moment for moment, *_ in wake_ups]
    for name, times in spans.items():
        within = [wake_ups[bisect_left(moments, start) : bisect_left(moments, end) + 1] for start, end, _ in times]
        blocked = [max(late_s - queued_s for _, late_s, queued_s in each) for each in within]
        queued = max(queued_s for each in within for *_, queued_s in each)
        status = "/".join(sorted({str(status) for *_, status in times if status}))
        late = ", ".join(f"{1000 * late_s:.1f}" for late_s in blocked)
        found = f"{late} ms; waiting for a CPU core: at most {1000 * queued:.1f} ms more"
        found += f"; status {status} within {max(end - start for start, end, _ in times):.1f} s" if status else ""
        # The median, because blocking code blocks every time, while noise of the machine occurs once.
        wanted, is_free = f"median at most {1000 * LIMIT_S:.0f} ms", statistics.median(blocked) <= LIMIT_S
        rows.append(Row(f"longest delays: {name}", found, wanted, is_free))
    return rows


def _pause() -> tuple[float, float, int]:
    started_s = time.monotonic()
    time.sleep(1)
    return started_s, time.monotonic(), 0


def _span(url: str, path: str, body: Any) -> tuple[float, float, int]:
    """Start and end of one request, on the monotonic clock, and its status."""
    command = [
        sys.executable,
        "-c",
        "from scripts.proofs.helpers.serving_event_loop import client; client()",
        url,
        path,
    ]
    done = subprocess.run(command, input=json.dumps(body).encode(), stdout=subprocess.PIPE, check=True, cwd=ROOT)
    started_s, ended_s, status = json.loads(done.stdout)
    return started_s, ended_s, status


def client() -> None:
    """Entry point of the client process: sends one request with the body from standard input.

    The monotonic clock is common to all processes of a machine.
    """
    from tests.support.serving.raw_http import ask

    url, path = sys.argv[1:]
    body, started_s = sys.stdin.buffer.read(), time.monotonic()
    answer = asyncio.run(ask(url, path, body))
    print(json.dumps([started_s, time.monotonic(), answer.status]))


def serve() -> None:
    """Entry point of the server process: `jaxserve serve` with the periodic task, whose wake-ups it writes at exit."""
    from jaxserve.cli.main import main
    from jaxserve.server.run import Process

    wake_up_file, *options = sys.argv[1:]
    wake_ups: list[tuple[float, float, float]] = []
    run = Process.run

    async def run_with_timer(self: Process) -> int:
        timer = asyncio.create_task(_wake_up_periodically(wake_ups))
        try:
            return await run(self)
        finally:
            timer.cancel()
            Path(wake_up_file).write_text(json.dumps(wake_ups))

    with mock.patch.object(Process, "run", run_with_timer):
        sys.exit(main(["serve", *options]))


async def _wake_up_periodically(wake_ups: list[tuple[float, float, float]]) -> None:
    """Appends per wake-up: its time, its delay, and how long the thread was runnable without a CPU core meanwhile."""
    last_s, last_queued_s = time.monotonic(), _queued_s()
    while True:
        await asyncio.sleep(PERIOD_S)
        now_s, queued_s = time.monotonic(), _queued_s()
        wake_ups.append((now_s, max(0.0, now_s - last_s - PERIOD_S), queued_s - last_queued_s))
        last_s, last_queued_s = now_s, queued_s


def _queued_s() -> float:
    """Total time that this thread has spent runnable but not running (Linux schedstat)."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
