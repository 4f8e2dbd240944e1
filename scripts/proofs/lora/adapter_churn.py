"""Two thousand adapters in the time of five: the same load in turns, and what is left of it in the pool.

Loads are skewed (the k-th adapter is drawn 1 / k^1.1 as often as the first) or uniform. Prompts are random, so that no
prefix is cached; those of a turn have the same lengths in each load. With fewer places than rows, rows of many adapters
stay free for want of a place, and those of five do not: that ratio is measured, and has no bound.
"""

import statistics
import sys
import time
from typing import Any

import numpy as np

from jaxserve import LoRARequest
from scripts.proofs.helpers.draft_configs import SMOLLM
from scripts.proofs.helpers.laws import Law
from scripts.proofs.helpers.stored_rows import STORE
from scripts.proofs.lora.proof_sizes import Sizes
from tests.support.adapters.random_adapters import write_random_adapter

NUM_FEW, RANK = 5, 8
LEAST_RATIO = 0.95
SKEW = 1.1
NUM_TOKENS, PROMPT_LENS = 32, (8, 40)
NUM_AGAIN = 12  # adapters whose texts are compared before and after the load


def churn(sizes: Sizes, *, num_rows: int, num_places: int = 32, max_cpu_loras: int | None = None) -> list[Law]:
    """max_cpu_loras: adapters in host memory; None: all. Where some are read again, or rows have no place, the ratio
    has no bound."""
    from jaxserve import LLM

    adapters = _written(sizes.num_churned)
    llm = LLM(
        SMOLLM,
        dtype="bfloat16",
        enable_lora=True,
        max_loras=num_places,
        max_lora_rank=RANK,
        max_cpu_loras=max_cpu_loras or len(adapters),
        max_num_seqs=num_rows,
        max_model_len=128,
        max_num_batched_tokens=256,
        buckets=" ".join([*map(str, sorted({16, 32, num_rows})), f"256x{num_rows}"]),
        num_pages=num_rows * 8 + num_places * 8 + 400,
    )
    started_s = time.perf_counter()
    for adapter in adapters:
        llm.load_adapter(adapter)
    registered_s = time.perf_counter() - started_s
    before = _alone(llm, adapters, "before")
    evictions = _watched(llm)
    rates = _rates(llm, adapters, sizes)
    after = _alone(llm, adapters, "after")
    pool = llm.parts.engine.scheduler.state.pool
    ratios = {name: statistics.median(np.divide(rates[name], rates["five"])) for name in ("skewed", "uniform")}
    least = LEAST_RATIO if max_cpu_loras is None and num_places >= num_rows else None
    return [
        (f"seconds to register {len(adapters)} adapters", registered_s, None, None),
        *((f"tokens/s, {name}", statistics.median(each), None, None) for name, each in rates.items()),
        (f"skewed over {NUM_FEW} adapters", ratios["skewed"], least, None),
        (f"uniform over {NUM_FEW} adapters", ratios["uniform"], None, None),
        ("adapters copied to the device", llm.stats.num_adapters_loaded, len(adapters) // 8, None),
        ("evictions", len(evictions), 1, None),
        ("evictions of adapters in use", sum(evictions), None, 0),
        ("pages referenced afterwards", pool.num_referenced, None, 0),
        ("pages neither free nor cached afterwards", pool.num_pages - 1 - pool.num_free - pool.num_cached, None, 0),
        (f"texts after the load as before it, of {len(before)}", sum(map(np.array_equal, before, after)),
         len(before), None),
        ("control: different texts among them", len(set(map(tuple, before))), len(before) // 2, None),
    ]  # fmt: skip


def _written(count: int) -> list[LoRARequest]:
    """Of queries, keys, values and outputs, in bfloat16: 1.8 MB each; kept for other rows."""
    folder = STORE / f"lora-adapters-{RANK}"
    names = [folder / f"churned-{i}" for i in range(count)]
    return [
        LoRARequest(name.name, str(name))
        if (name / "adapter_config.json").exists()
        else write_random_adapter(name, SMOLLM, RANK, i, ("q", "k", "v", "o"), dtype="BF16")
        for i, name in enumerate(names)
    ]


def _rates(llm: Any, adapters: list[LoRARequest], sizes: Sizes) -> dict[str, list[float]]:
    """Tokens/s of each load in each turn; the first turn compiles."""
    from jaxserve import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, detokenize=False)
    loads = {"five": _skewed(NUM_FEW), "skewed": _skewed(len(adapters)), "uniform": None}
    rates = {name: list[float]() for name in loads}
    for turn in range(sizes.num_turns + 1):
        lens = np.random.default_rng(turn).integers(*PROMPT_LENS, sizes.num_requests)
        for name in loads if turn % 2 else reversed(loads):
            law = loads[name]
            rng = np.random.default_rng([turn, list(loads).index(name)])
            prompts = [rng.integers(20, 300, length).tolist() for length in lens]
            drawn = [adapters[i] for i in rng.choice(len(adapters if law is None else law), sizes.num_requests, p=law)]
            started_s = time.perf_counter()
            llm.generate(prompts, params, lora_request=drawn, use_tqdm=False)
            rate = sizes.num_requests * NUM_TOKENS / (time.perf_counter() - started_s)
            print(f"turn {turn}, {name}: {rate:.1f} tokens/s", file=sys.stderr)
            if turn:
                rates[name].append(rate)
    return rates


def _skewed(count: int) -> np.ndarray:
    """How often each adapter is drawn."""
    weights = np.arange(1.0, count + 1) ** -SKEW
    return weights / weights.sum()


def _watched(llm: Any) -> list[bool]:
    """Grows by each eviction: whether slots used the adapter."""
    places, evictions = llm.parts.engine.scheduler.state.adapters, list[bool]()
    evict_next = places._evict_next

    def watched() -> int:
        users = {number: place.num_users for number, place in places.places.items()}
        number = evict_next()
        evictions.append(users[number] > 0)
        return number

    places._evict_next = watched
    return evictions


def _alone(llm: Any, adapters: list[LoRARequest], salt: str) -> list[list[int]]:
    """Greedy texts of some adapters, one at a time, without cached prefixes."""
    from jaxserve import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    numbers = np.linspace(0, len(adapters) - 1, min(NUM_AGAIN, len(adapters))).astype(int)
    prompt = {"prompt_token_ids": list(range(100, 120)), "cache_salt": salt}
    return [
        llm.generate([prompt], params, lora_request=adapters[i], use_tqdm=False)[0].outputs[0].token_ids
        for i in numbers
    ]
