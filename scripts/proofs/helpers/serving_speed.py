"""The part speed: throughput in tokens/s of streamed HTTP requests, relative to the engine without a server.

Rounds of both alternate, so that other load on the machine affects both. The clients run in a separate process and
parse the streams only after the last one has ended.
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scripts.proofs.helpers.served_model import served
from scripts.proofs.helpers.serving_row import MODEL, NUM_SEQS, SIZES, Progress, Row
from tests.support.serving.raw_http import ask

ROOT = Path(__file__).parents[3]
MIN_RATIO = 0.9
NUM_ROUNDS, NUM_PROMPTS, PROMPT_LEN, NUM_TOKENS = 3, 96, 48, 64
OPTIONS: dict[str, Any] = {"max_model_len": 512, "max_num_seqs": NUM_SEQS, "max_num_batched_tokens": 256}


def speed(size: float) -> list[Row]:
    from jaxserve import LLM, SamplingParams

    number, num_rounds = max(NUM_SEQS, round(NUM_PROMPTS * size)), max(2, round(NUM_ROUNDS * size))
    llm = LLM(MODEL, buckets=SIZES[-1], enable_prefix_caching=False, **OPTIONS)
    llm.warm_up(use_tqdm=False)
    params = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True)
    rates: dict[str, list[float]] = {"engine": [], "HTTP": []}
    cpu_s, progress = 0.0, Progress("rounds", num_rounds)
    with served(MODEL, "--max-model-len", "512", "--no-enable-prefix-caching", *SIZES) as url:
        for i in range(-1, num_rounds):  # round -1 warms up
            prompts = _prompts(i, number, llm.parts.model.vocab_size)
            started_s = time.monotonic()
            outputs = llm.generate(prompts, params, use_tqdm=False)
            alone_s = time.monotonic() - started_s
            assert sum(len(output.outputs[0].token_ids) for output in outputs) == number * NUM_TOKENS
            clients = _clients(url, prompts)
            assert clients["num_tokens"] == number * NUM_TOKENS
            if i >= 0:
                rates["engine"].append(number * NUM_TOKENS / alone_s)
                rates["HTTP"].append(number * NUM_TOKENS / clients["seconds"])
                cpu_s += clients["cpu_s"]
            progress(i + 1)
    listed = {name: "/".join(f"{rate:.0f}" for rate in found) for name, found in rates.items()}
    ratio = statistics.mean(rates["HTTP"]) / statistics.mean(rates["engine"])
    found = f"{ratio:.3f} of the engine's: {listed['HTTP']} against {listed['engine']} tokens/s; clients' CPU time"
    per_token_us = 1e6 * cpu_s / (num_rounds * number * NUM_TOKENS)
    what = f"{number} prompts of {PROMPT_LEN} tokens, {NUM_TOKENS} sampled, {NUM_SEQS} at a time, {num_rounds} rounds"
    return [Row(what, f"{found} {per_token_us:.0f} µs per token", f"at least {MIN_RATIO}", ratio >= MIN_RATIO)]


def _prompts(seed: int, number: int, vocab_size: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(vocab_size) for _ in range(PROMPT_LEN)] for _ in range(number)]


def _clients(url: str, prompts: list[list[int]]) -> dict[str, Any]:
    """Sends all prompts over HTTP from a separate process; returns its seconds, CPU seconds and number of tokens."""
    params = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    bodies = [json.dumps({"prompt": prompt, **params}) for prompt in prompts]
    command = [sys.executable, "-c", "from scripts.proofs.helpers.serving_speed import client; client()", url]
    done = subprocess.run(command, input="\n".join(bodies), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


def client() -> None:
    """Entry point of the client process: sends the bodies from standard input, one per line, `NUM_SEQS` at a time."""
    url, bodies = sys.argv[1], iter(sys.stdin.read().encode().splitlines())
    answers = []

    async def one() -> None:
        for body in bodies:
            answers.append(await ask(url, "/v1/completions", body))

    async def main() -> None:
        await asyncio.gather(*(one() for _ in range(NUM_SEQS)))

    started_s, before_s = time.monotonic(), time.process_time()
    asyncio.run(main())
    times = {"seconds": time.monotonic() - started_s, "cpu_s": time.process_time() - before_s}
    num_tokens = sum(answer.events[-1]["usage"]["completion_tokens"] for answer in answers)
    print(json.dumps({**times, "num_tokens": num_tokens}))
