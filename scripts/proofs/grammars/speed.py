"""What forms cost on this machine: ratios of runs in turns, of which the median counts.

The model, the host and the grammars share the cores of the machine; a device of its own would leave the host alone.
"""

import statistics
import sys
import time
from typing import Any

from scripts.proofs.grammars.equal_texts import PERSON
from scripts.proofs.helpers.laws import Law
from scripts.proofs.parity import read_goldens

MODEL = "smollm2-135m-instruct"
OPTIONS = {"max_model_len": 512, "max_num_seqs": 64, "max_num_batched_tokens": 512, "buckets": "64 512x64"}
NUM_ROWS, NUM_TOKENS, NUM_TURNS = 64, 64, 6
LEAST_RATE, MOST_LATENCY = 0.9, 1.1
LIST = {"type": "array", "items": PERSON, "minItems": 100}


def speeds() -> list[Law]:
    from jaxserve import LLM

    llm, goldens = LLM(MODEL, **OPTIONS), read_goldens(MODEL)[0]
    prompts = [goldens[i % len(goldens)][:32] for i in range(NUM_ROWS)]
    free, listed, mixed = [None] * NUM_ROWS, [{"json": LIST}] * NUM_ROWS, [None, {"json": LIST}] * (NUM_ROWS // 2)
    any_text = [{"regex": "(?s:.*)"}] * NUM_ROWS
    found: dict[str, list[tuple[float, float]]] = {}
    for turn in range(NUM_TURNS + 1):
        cases = {"free": free, "any text": any_text, "JSON": listed, "mixed": mixed}
        for name in cases if turn % 2 else reversed(cases):
            measured = _measure(llm, prompts, cases[name])
            print(f"turn {turn}, {name}: {measured[0]:.1f} tokens/s, {1e3 * measured[1]:.0f} ms", file=sys.stderr)
            if turn:  # the first compiles
                found.setdefault(name, []).append(measured)
    ratios = {
        name: [statistics.median(a[i] / b[i] for a, b in zip(found[name], found["free"], strict=True)) for i in (0, 1)]
        for name in found
    }
    return [
        (f"tokens/s of {NUM_ROWS} rows of any text, over none with a form", ratios["any text"][0], LEAST_RATE, None),
        (f"tokens/s of {NUM_ROWS} rows of JSON, over none with a form", ratios["JSON"][0], LEAST_RATE, None),
        ("time between tokens of 32 rows without a form in a batch with 32 of JSON, over that with 32 more without",
         ratios["mixed"][1], None, MOST_LATENCY),
    ]  # fmt: skip


def _measure(llm, prompts: list[list[int]], forms: list[dict[str, Any] | None]) -> tuple[float, float]:
    """Tokens/s of all, and the mean time between tokens of every other row, the first among them."""
    from jaxserve import SamplingParams

    params = [
        SamplingParams(temperature=1.0, seed=i, max_tokens=NUM_TOKENS, min_tokens=NUM_TOKENS * (form is None),
                       structured_outputs=form)
        for i, form in enumerate(forms)
    ]  # fmt: skip
    started = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    rate = sum(len(output.outputs[0].token_ids) for output in outputs) / (time.perf_counter() - started)
    gaps = [
        (output.metrics.finish_s - output.metrics.first_token_s) / max(len(output.outputs[0].token_ids) - 1, 1)
        for output in outputs[::2]
    ]
    return rate, statistics.mean(gaps)
