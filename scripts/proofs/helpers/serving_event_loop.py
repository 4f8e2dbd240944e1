"""How long anything keeps the event loop of a server from others' requests while a long prompt comes in. The part loop.

A heart beats in the loop of `jaxserve serve` itself, every two milliseconds; as late as a beat comes, a stranger's
request would have been looked at. What it waited for a processor, which the model computes on, is told apart: it says
nothing of the server. Bodies are made and sent by a process of their own.
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

from scripts.proofs.helpers.served_model import served
from scripts.proofs.helpers.serving_row import MODEL, SIZES, Row
from tests.support.golden_tokenizers import tokenizer_of

ROOT = Path(__file__).parents[3]
BEAT_S, LIMIT_S = 0.002, 0.02
NUM_TOKENS = 100_000
LONG_CONTEXT = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 49152,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": True,
    "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
}  # fmt: skip
COMMAND = (sys.executable, "-c", "from scripts.proofs.helpers.serving_event_loop import serve; serve()")


def loop(size: float) -> list[Row]:
    """Refused, cut and turned into tokens by SmolLM2, whose context is 8,192; computed by a small model of 131,072."""
    text, ids = _prompt(round(NUM_TOKENS * size))
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
    all_of_it = {"max_tokens": 4, "skip_reading_prefix_cache": True}
    computed = {
        "text, computed": ("/v1/completions", {"prompt": text, **all_of_it}),
        "token ids, computed, streamed": ("/v1/completions", {"prompt": ids, "stream": True, **all_of_it}),
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
    """Words of this project's design in any order, as text and as tokens."""
    words, rng, tokenizer = Path(ROOT, "docs/design.md").read_text().split(), random.Random(0), tokenizer_of(MODEL)
    ids = tokenizer.encode(" ".join(rng.choice(words) for _ in range(num_tokens)))[:num_tokens]
    return tokenizer.decode(ids), ids


def _measured(cases: dict[str, Any], num_times: int, model: str, *options: str) -> list[Row]:
    """A row for each case: the latest beat each time, and the status."""
    with tempfile.TemporaryDirectory() as folder:
        beats = Path(folder, "beats.json")
        spans: dict[str, list[tuple[float, float, int]]] = {name: [] for name in cases}
        with served(model, *options, command=(*COMMAND, str(beats))) as url:
            for _ in range(num_times):
                for name, case in cases.items():
                    spans[name].append(_span(url, *case) if case else _pause())
                    time.sleep(0.1)
        told = json.loads(beats.read_text())
    rows, moments = [], [moment for moment, *_ in told]
    for name, times in spans.items():
        within = [told[bisect_left(moments, start) : bisect_left(moments, end) + 1] for start, end, _ in times]
        blocked = [max(late_s - queued_s for _, late_s, queued_s in each) for each in within]
        queued = max(queued_s for each in within for *_, queued_s in each)
        status = "/".join(sorted({str(status) for *_, status in times if status}))
        late = ", ".join(f"{1000 * late_s:.1f}" for late_s in blocked)
        found = f"{late} ms; besides, no processor for {1000 * queued:.1f} ms at most"
        found += f"; answered {status} within {max(end - start for start, end, _ in times):.1f} s" if status else ""
        # What blocks does so each time; what befalls a machine of its own comes once.
        wanted, is_free = f"{1000 * LIMIT_S:.0f} ms at most, in the median", statistics.median(blocked) <= LIMIT_S
        rows.append(Row(f"latest beats: {name}", found, wanted, is_free))
    return rows


def _pause() -> tuple[float, float, int]:
    started_s = time.monotonic()
    time.sleep(1)
    return started_s, time.monotonic(), 0


def _span(url: str, path: str, body: Any) -> tuple[float, float, int]:
    """When a request was sent, when its answer had come, and its status."""
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
    """Run as a program: one request, whose body comes from standard input. Clocks of one machine's processes agree."""
    from tests.support.serving.raw_http import ask

    url, path = sys.argv[1:]
    body, started_s = sys.stdin.buffer.read(), time.monotonic()
    answer = asyncio.run(ask(url, path, body))
    print(json.dumps([started_s, time.monotonic(), answer.status]))


def serve() -> None:
    """Run as a program: `jaxserve serve` with a heart, whose beats it writes down at its end."""
    from jaxserve.cli.main import main
    from jaxserve.server.run import Process

    beats, *options = sys.argv[1:]
    told: list[tuple[float, float, float]] = []
    run = Process.run

    async def run_with_heart(self: Process) -> int:
        heart = asyncio.create_task(_beat(told))
        try:
            return await run(self)
        finally:
            heart.cancel()
            Path(beats).write_text(json.dumps(told))

    Process.run = run_with_heart  # type: ignore[method-assign]
    sys.exit(main(["serve", *options]))


async def _beat(beats: list[tuple[float, float, float]]) -> None:
    """When each beat came, how late it was, and for how long of that the thread was ready and had no processor."""
    last_s, last_queued_s = time.monotonic(), _queued_s()
    while True:
        await asyncio.sleep(BEAT_S)
        now_s, queued_s = time.monotonic(), _queued_s()
        beats.append((now_s, max(0.0, now_s - last_s - BEAT_S), queued_s - last_queued_s))
        last_s, last_queued_s = now_s, queued_s


def _queued_s() -> float:
    """Linux: how long this thread has waited for a processor in all."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
