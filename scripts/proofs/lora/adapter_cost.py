"""What adapters cost a decode step: nothing where no row has one, and how much by rows, adapters and ranks.

In turns in one process; ratios are medians over the turns. Times are those that a round occupied the device.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxserve import LoRARequest
from scripts.proofs.helpers.draft_configs import SMOLLM
from scripts.proofs.helpers.laws import Law
from scripts.proofs.lora.proof_sizes import Sizes
from tests.support.adapters.random_adapters import write_random_adapter

ROWS, DISTINCT, RANKS = (8, 64), (1, 8, 64), (8, 16)
MOST_OFF = 1.02
NUM_TOKENS, PROMPT_LEN = 64, 16
OPTIONS: dict[str, Any] = {
    "dtype": "bfloat16",
    "max_model_len": 128,
    "max_num_seqs": 64,
    "max_num_batched_tokens": 256,
    "buckets": "8 64 256x64",
}
ADAPTERS: dict[str, Any] = {"enable_lora": True, "max_loras": max(DISTINCT), "max_lora_rank": max(RANKS)}


def off(sizes: Sizes) -> list[Law]:
    """Requests without adapters: an engine that could serve them, over one that could not. Each is built first for half
    of the turns, since times also depend on where weights lie in memory."""
    from jaxserve import LLM

    kinds: dict[str, dict[str, Any]] = {"with enable_lora": ADAPTERS, "without": {}}
    times = {(name, rows): list[float]() for rows in ROWS for name in kinds}
    for order in (list(kinds), list(kinds)[::-1]):
        engines = {name: LLM(SMOLLM, **OPTIONS, **kinds[name], num_pages=3000) for name in order}
        for rows in ROWS:
            for turn in range(sizes.num_turns + 1):
                for name in order if turn % 2 else order[::-1]:
                    time_s = _round_time(engines[name], rows, None, turn)
                    if turn:  # the first compiles
                        times[name, rows].append(time_s)
        del engines
    laws = list[Law]()
    for rows in ROWS:
        ratio = statistics.median(np.divide(times["with enable_lora", rows], times["without", rows]))
        laws += [(f"{rows} rows, {name}: ms", 1e3 * statistics.median(times[name, rows]), None, None) for name in kinds]
        laws.append((f"{rows} rows: with over without", ratio, None, MOST_OFF))
    return laws


def step_times(sizes: Sizes) -> list[Law]:
    """By rows, distinct adapters of all matrices, and their rank."""
    from jaxserve import LLM

    with tempfile.TemporaryDirectory() as folder:
        adapters = {
            rank: [
                write_random_adapter(Path(folder) / f"{rank}-{i}", SMOLLM, rank, i, dtype="BF16")
                for i in range(max(DISTINCT))
            ]
            for rank in RANKS
        }
        llm = LLM(SMOLLM, **OPTIONS, **ADAPTERS, num_pages=3000)
        cases = [
            (rows, rank, count) for rows in ROWS for rank in RANKS for count in DISTINCT if count <= rows
        ]  # fmt: skip
        plain = {rows: list[float]() for rows in ROWS}
        times = {case: list[float]() for case in cases}
        for turn in range(sizes.num_turns + 1):
            for rows in ROWS:
                plain[rows].append(_round_time(llm, rows, None, turn))
            for rows, rank, count in cases:
                given = [adapters[rank][i % count] for i in range(rows)]
                times[rows, rank, count].append(_round_time(llm, rows, given, turn))
    laws: list[Law] = [
        (f"{rows} rows without adapters: ms", 1e3 * statistics.median(each[1:]), None, None)
        for rows, each in plain.items()
    ]
    for (rows, rank, count), each in times.items():
        ratio = statistics.median(np.divide(each[1:], plain[rows][1:]))
        name = (
            f"{rows} rows, {count} adapters of rank {rank}" if count > 1 else f"{rows} rows, 1 adapter of rank {rank}"
        )
        laws += [(f"{name}: ms", 1e3 * statistics.median(each[1:]), None, None)]
        laws += [(f"{name}: over that without", ratio, None, None)]
    return laws


def _round_time(llm: Any, rows: int, adapters: list[LoRARequest] | None, seed: int) -> float:
    """Median seconds of a round, of the decode steps with all rows."""
    from jaxserve import SamplingParams

    records = []
    llm.parts.engine.observer = records.append
    prompts = np.random.default_rng(seed).integers(20, 300, (rows, PROMPT_LEN)).tolist()
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, detokenize=False)
    llm.generate(prompts, params, lora_request=adapters, use_tqdm=False)
    llm.parts.engine.observer = None
    full = [record for record in records if record.kind == "decode" and record.num_rows == rows]
    return statistics.median(record.moments.device_s / record.num_rounds for record in full)
