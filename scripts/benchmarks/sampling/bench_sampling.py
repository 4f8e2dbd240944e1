"""Measures the step time of every sampling setting against greedy's; `--help` lists options."""

import argparse
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.bench import machine
from jaxserve.cli.args.arg_types import count
from jaxserve.sampling.logprobs import top_logprobs
from jaxserve.sampling.sample_tokens import sample_tokens
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.slot_state import SlotState, init_slot_state
from scripts.benchmarks.report_page import (
    as_markdown,
    conditions,
    document,
    hardware_text,
    listing,
    machine_facts,
    write,
)
from scripts.benchmarks.sampling.sampling_cases import OFF, SCALES, SETTINGS

REPORT = Path(__file__).parents[3] / "docs" / "benchmarks" / "sampling.md"
NUM_EDITS, MAX_LOGPROBS, LIMIT = 300, 20, 1.5
INTRODUCTION = """# Step times of sampling settings

What follows the layers in a decode step: the product of hidden states and the vocabulary's matrix, logit edits, the
draw and log-probabilities, compiled as one function. It leaves the layers out, so ratios of whole steps are smaller.
All rows have the same setting. In a round every setting runs next to a greedy step on the same logits. A figure is the
median over the rounds of its time divided by the greedy one's. Times are CPU times of the process, all threads
together, which other processes lengthen less than elapsed ones."""
METHOD = """Logits are normally distributed: *flat* ones with a standard deviation of 1e-6, *usual* ones of 1, *peaked*
ones of 30. A ratio over 1.5 is bold.

## What costs most

A top-k beyond the candidates that a row keeps has its threshold searched in the whole vocabulary: some 20 passes and
1.5 to 2 ms of CPU time for each row of 262,144 logits. Together with the layers, which a step of the model also
computes, the ratio is smaller.

## Log-probabilities of chats

A chat of SmolLM2 135M, streamed over HTTP to one client, with and without log-probabilities in turn (2026-11-23, two
cores of an Intel Xeon that other processes shared): the server and its client took 61 to 64 ms of CPU time per token.
With the chosen token's log-probability it was 1.01 times that without, with 5 candidates 1.03, with 20 candidates 1.01
times, and 1.00 times in a chat of 200 tokens. On the device they take 0.5 ms for 8 rows."""


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    hardware, load = machine.host(), os.getloadavg()[0]
    rng = np.random.default_rng(0)
    weights = jnp.asarray(rng.standard_normal((args.vocab_size, args.width), np.float32), jnp.bfloat16)
    hidden = jnp.asarray(rng.standard_normal((args.rows, args.width)) / args.width**0.5, jnp.bfloat16)
    slots = _slots(args.rows, args.vocab_size)
    found: dict[str, dict[str, Any]] = {name: {} for name in SETTINGS}
    for kind, scale in SCALES.items():
        times: dict[str, list[float]] = {name: [] for name in SETTINGS}
        step = partial(_timed, weights, hidden * scale, slots)
        for number in range(args.rounds + 1):  # the first round compiles and is discarded
            print(f"{kind}: round {number} of {args.rounds}", file=sys.stderr)
            for name, setting in SETTINGS.items():
                greedy_s, own_s = step({"temperature": 0.0}), step(setting)
                if number:
                    times[name].append(own_s / greedy_s)
                    found["greedy"].setdefault("ms", []).append(greedy_s * 1000)
        for name, ratios in times.items():
            found[name][kind] = median(ratios)
    record = {"ratios": found, "rows": args.rows, **machine_facts(load, hardware)}
    write(args.out, page(record, args, argv), record)
    return 0


@jax.jit
def _step(
    weights: jax.Array, hidden: jax.Array, batch: SamplingBatch, positions: jax.Array, slots: SlotState
) -> tuple[Any, Any]:
    logits = jnp.einsum("rd,vd->rv", hidden, weights, preferred_element_type=jnp.float32)
    tokens, is_bad, processed = sample_tokens(logits, batch, positions, slots)
    return (tokens, is_bad), top_logprobs(processed, tokens, batch.num_logprobs, k=MAX_LOGPROBS)


def _timed(weights: jax.Array, hidden: jax.Array, slots: SlotState, setting: dict[str, Any]) -> float:
    """Seconds that all threads of the process compute, in the fastest of three steps."""
    batch, positions = _batch(len(hidden), setting), jnp.full(len(hidden), 9, jnp.int32)
    times: list[float] = []
    for _ in range(3):
        started_s = time.process_time()
        jax.block_until_ready(cast(Any, _step)(weights, hidden, batch, positions, slots))
        times.append(time.process_time() - started_s)
    return min(times)


def _batch(num_rows: int, setting: dict[str, Any]) -> SamplingBatch:
    def column(value: float) -> jax.Array:
        kind = {bool: jnp.bool_, int: jnp.int32, float: jnp.float32}[type(value)]
        return jnp.full(num_rows, value, kind)

    columns = {name: column(value) for name, value in {**OFF, **setting}.items()}
    rows, zeros = jnp.arange(num_rows, dtype=jnp.int32), column(0)
    return SamplingBatch(
        slot=rows, seed_low=rows.astype(jnp.uint32), seed_high=zeros.astype(jnp.uint32), sample_index=zeros,
        prompt_len=column(4), num_prompt_logprobs=column(-1), mask_row=zeros, pooling=zeros, **columns,
    )  # fmt: skip


def _slots(num_rows: int, vocab_size: int) -> SlotState:
    """Each row has seen 2,000 tokens, and has `NUM_EDITS` biases."""
    rng, state = np.random.default_rng(1), init_slot_state(num_rows, vocab_size, NUM_EDITS)
    counts = np.zeros(state.counts.shape, np.int16)
    counts[:, rng.choice(vocab_size, 2000, replace=False)] = 2
    ids = np.broadcast_to(rng.choice(vocab_size, NUM_EDITS, replace=False), state.edit_ids.shape)
    return replace(
        state,
        counts=jnp.asarray(counts),
        edit_ids=jnp.asarray(ids, jnp.int32),
        edit_bias=jnp.ones_like(state.edit_bias),
        edit_until=jnp.full_like(state.edit_until, 1 << 30),
    )


def page(record: dict[str, Any], args: argparse.Namespace, argv: list[str]) -> str:
    before, after = record["load"]
    table = [["setting", *SCALES]]
    for name, ratios in record["ratios"].items():
        cells = [f"{ratios[kind]:.2f}" for kind in SCALES]
        table.append([name, *(f"**{cell}**" if float(cell) > LIMIT else cell for cell in cells)])
    facts = conditions(
        "python",
        ["-m", "scripts.benchmarks.sampling.bench_sampling", *argv],
        hardware=hardware_text(record["hardware"]),
        versions=listing(record["versions"]),
        load=f"{before:.1f} before, {after:.1f} after: number of runnable processes, including this one",
        sizes=f"{args.rows} rows, width {args.width}, vocabulary {args.vocab_size:,} (Gemma 3 270M's)",
        greedy_step=f"{median(record['ratios']['greedy']['ms']):.1f} ms",
        rounds=str(args.rounds),
    )
    return document([INTRODUCTION, facts, as_markdown(table), METHOD])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.sampling.bench_sampling",
        description="Measure the end of a decode step under each sampling setting, relative to greedy.",
    )
    parser.add_argument("--rows", type=count, default=8, help="rows of the step (default: %(default)s)")
    parser.add_argument("--width", type=count, default=640, help="width of the model (default: %(default)s)")
    parser.add_argument("--vocab-size", type=count, default=262_144, help="vocabulary (default: %(default)s)")
    parser.add_argument("--rounds", type=count, default=5, help="rounds after a discarded one (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=REPORT, help=f"path of the page (default: {REPORT.name})")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
