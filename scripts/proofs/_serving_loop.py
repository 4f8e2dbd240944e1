"""How long anything keeps the event loop of a server from others' requests while a long prompt comes in. The part loop.

A heart beats in the loop of `jaxserve serve` itself, twice in five milliseconds; how late each beat is, is how long a
stranger's request would have waited. Bodies are made and sent by a process of their own.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from pathlib import Path
from typing import Any

from scripts.proofs._server import served
from scripts.proofs._serving_row import MODEL, SIZES, Row

ROOT = Path(__file__).parents[2]
BEAT_S, LIMIT_S, NUM_TIMES = 0.002, 0.02, 3
NUM_TOKENS = 100_000
LONG_CONTEXT = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 49152,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": True,
    "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
}  # fmt: skip
COMMAND = (sys.executable, "-c", "from scripts.proofs._serving_loop import serve; serve()")


def loop(size: float) -> list[Row]:
    """Refused, cut and turned into tokens by SmolLM2, whose context is 8,192; computed by a small model of 131,072."""
    text = " the" * round(NUM_TOKENS * size)
    text = (text * 2)[: 5 * round(NUM_TOKENS * size)]
    ids = [7 + i % 30_000 for i in range(round(NUM_TOKENS * size))]
    chat = {"messages": [{"role": "user", "content": text}]}
    cut = {"truncate_prompt_tokens": 100, "max_tokens": 4}
    refused = {
        "nothing": None,
        "text, refused": ("/v1/completions", {"prompt": text}),
        "token ids, refused": ("/v1/completions", {"prompt": ids}),
        "a chat, refused": ("/v1/chat/completions", chat),
        "text, cut to 100 tokens": ("/v1/completions", {"prompt": text, **cut}),
        "token ids, cut": ("/v1/completions", {"prompt": ids, **cut}),
        "text to /tokenize": ("/tokenize", {"prompt": text}),
        "text to /tokenize, with its tokens": ("/tokenize", {"prompt": text, "return_token_strs": True}),
        "token ids to /detokenize": ("/detokenize", {"tokens": ids}),
        "text to /v1/embeddings, cut": ("/v1/embeddings", {"input": text, "truncate_prompt_tokens": 100}),
    }
    computed = {
        "text, computed": ("/v1/completions", {"prompt": text, "max_tokens": 4}),
        "token ids, computed, streamed": ("/v1/completions", {"prompt": ids, "max_tokens": 4, "stream": True}),
    }
    rows = _measured(refused, MODEL, "--max-model-len", "8192", *SIZES)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(LONG_CONTEXT))
        options = ("--load-format", "dummy", "--tokenizer", MODEL, "--max-model-len", "131072", "--max-num-seqs", "4")
        shapes = ("--max-num-batched-tokens", "2048", "--buckets", "4 2048x4", "--num-pages", "9000")
        rows += _measured(computed, folder, *options, *shapes)
    return rows


def _measured(cases: dict[str, Any], model: str, *options: str) -> list[Row]:
    """A row for each case: its statuses, and the latest beat within it."""
    with tempfile.TemporaryDirectory() as folder:
        beats = Path(folder, "beats.json")
        spans: dict[str, list[tuple[float, float, int]]] = {name: [] for name in cases}
        with served(model, *options, command=(*COMMAND, str(beats))) as url:
            for _ in range(NUM_TIMES):
                for name, case in cases.items():
                    spans[name].append(_span(url, *case) if case else _pause())
                    time.sleep(0.1)
        moments, lags = json.loads(beats.read_text())
    rows = []
    for name, times in spans.items():
        worst = [max(lags[bisect_left(moments, start) : bisect_left(moments, end) + 1]) for start, end, _ in times]
        took = max(end - start for start, end, _ in times)
        status = "/".join(sorted({str(status) for *_, status in times if status}))
        found = ", ".join(f"{1000 * lag:.1f}" for lag in worst) + " ms"
        found += f"; answered {status} within {took:.1f} s" if status else ""
        rows.append(Row(f"event loop: {name}", found, f"{1000 * LIMIT_S:.0f} ms at most", max(worst) <= LIMIT_S))
    return rows


def _pause() -> tuple[float, float, int]:
    started_s = time.monotonic()
    time.sleep(1)
    return started_s, time.monotonic(), 0


def _span(url: str, path: str, body: Any) -> tuple[float, float, int]:
    """When a request was sent, when its answer had come, and its status."""
    command = [sys.executable, "-c", "from scripts.proofs._serving_loop import client; client()", url, path]
    done = subprocess.run(command, input=json.dumps(body).encode(), stdout=subprocess.PIPE, check=True, cwd=ROOT)
    started_s, ended_s, status = json.loads(done.stdout)
    return started_s, ended_s, status


def client() -> None:
    """Run as a program: one request, whose body comes from standard input. Clocks of one machine's processes agree."""
    from tests.support.raw_http import ask

    url, path = sys.argv[1:]
    body, started_s = sys.stdin.buffer.read(), time.monotonic()
    answer = asyncio.run(ask(url, path, body))
    print(json.dumps([started_s, time.monotonic(), answer.status]))


def serve() -> None:
    """Run as a program: `jaxserve serve` with a heart, whose beats it writes down at its end."""
    from jaxserve.cli.main import main
    from jaxserve.server.run import Process

    beats, *options = sys.argv[1:]
    moments: list[float] = []
    lags: list[float] = []
    run = Process.run

    async def run_with_heart(self: Process) -> int:
        heart = asyncio.create_task(_beat(moments, lags))
        try:
            return await run(self)
        finally:
            heart.cancel()
            Path(beats).write_text(json.dumps([moments, lags]))

    Process.run = run_with_heart  # type: ignore[method-assign]
    sys.exit(main(["serve", *options]))


async def _beat(moments: list[float], lags: list[float]) -> None:
    """moments: when each beat came. lags: how late it was."""
    last_s = time.monotonic()
    while True:
        await asyncio.sleep(BEAT_S)
        now_s = time.monotonic()
        moments.append(now_s)
        lags.append(max(0.0, now_s - last_s - BEAT_S))
        last_s = now_s
