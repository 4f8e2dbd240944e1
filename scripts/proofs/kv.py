"""Greedy tokens are the same whether KV pages are kept, reused, evicted, recomputed or loaded from host memory.

100 prompts of different lengths x 32 tokens in float32 for each real model, against the tokens of transformers that
`scripts/prove parity` uses: a different token is a tie, not a fault, only where the two largest logits lie within 1e-3.
Then the time to the first token of a prompt of 1,000 tokens and a question, with and without the 1,000 tokens in the
prefix cache.
"""

import statistics
import sys
import time

from jaxserve import LLM, SamplingParams
from jaxserve.core.outputs import RequestOutput
from scripts.proofs.parity import compare, read_goldens, tolerances

OPTIONS = {"dtype": "float32", "max_model_len": 1024, "max_num_seqs": 32, "max_num_batched_tokens": 512}
SMALL_POOLS = {"smollm2-135m-instruct": 200, "gemma-3-270m": 600}  # pages; few enough for repeated preemption
NO_CACHE, HOST = {"enable_prefix_caching": False}, {"host_kv_cache_bytes": 4 * 2**30}
# Name → (options, whether the pool is small, number of passes over all prompts, counts that the last pass must raise).
WAYS = {
    "no cache": (NO_CACHE, False, 1, ()),
    "cache": ({}, False, 2, ("found",)),
    "preempted, recomputed": (NO_CACHE, True, 1, ("preempted",)),
    "preempted, found in the pool": ({}, True, 1, ("preempted", "found")),
    "preempted, swapped": (HOST, True, 1, ("preempted", "found", "loaded")),
}
NUM_TOKENS = 32
COUNTS = {"preempted": "num_preemptions", "found": "num_cached_tokens", "saved": "num_saved", "loaded": "num_loaded"}
NUM_SHARED, NUM_TIMES, MIN_RATIO = 1000, 7, 5.0


def main(argv: list[str]) -> str:
    if argv:
        raise SystemExit("scripts/prove kv takes no options")
    titles = ["model, variant", "equal", "ties (top-2 gap)", "faults", "log-probability error", *COUNTS, "s"]
    lines, bad = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"], []
    for model in SMALL_POOLS:
        for way in WAYS:
            for name, row in run(model, way):
                ties = ", ".join(f"{tie['gap']:.1e}" for tie in row["ties"]) or "–"
                cells = [name, row["equal"], ties, len(row["faults"]), f"{row['logprob_error']:.1e}"]
                cells += [*(row[count] for count in COUNTS), row["seconds"]]
                lines.append(f"| {' | '.join(map(str, cells))} |")
                print(lines[-1], file=sys.stderr)
                if row["faults"] or row["logprob_error"] > tolerances(read_goldens(model)[1])[0] or row["missing"]:
                    bad.append(f"{name} ({', '.join(row['missing']) or 'tokens'})")
    lines += ["", *first_tokens(bad)]
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])


def run(model: str, way: str):
    """One row per pass; in the second pass the prefix cache holds the prompts."""
    options, is_small, num_times, must = WAYS[way]
    pages = {"num_pages": SMALL_POOLS[model]} if is_small else {}
    prompts, golden = read_goldens(model)
    llm = LLM(model, **OPTIONS, **options, **pages, keep_lowered=True)
    llm.parts.engine.scheduler.state.swap_cost.page_s = 0.0  # loading is always chosen over recomputing
    golden = {key: golden[key][:, :NUM_TOKENS] for key in ("tokens", "logprobs", "gaps")}
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, logprobs=0)
    for i in range(num_times):
        before, started = llm.stats, time.monotonic()
        outputs = llm.generate(prompts, params)
        row = compare([out.outputs[0] for out in outputs], golden)
        row |= {name: getattr(llm.stats, field) - getattr(before, field) for name, field in COUNTS.items()}
        row["seconds"] = round(time.monotonic() - started, 1)
        row["missing"] = [name for name in must if not row[name]] if i == num_times - 1 else []
        if llm.stats.num_pages_free + llm.stats.num_pages_cached != llm.parts.sizes.num_pages - 1:
            row["missing"].append("pages")
        yield f"{model}, {way}" + (", second pass" if i else ""), row


def first_tokens(bad: list[str]) -> list[str]:
    """Median times to the first token in bfloat16; a cache salt makes a prompt miss the prefix cache."""
    model = "smollm2-135m-instruct"
    llm = LLM(model, max_model_len=1152, max_num_seqs=8, keep_lowered=True)
    prompts, _ = read_goldens(model)
    shared = [token for prompt in prompts for token in prompt][:NUM_SHARED]
    times: dict[str, list[float]] = {"miss": [], "hit": []}
    for i in range(-1, NUM_TIMES):  # pass -1 compiles
        for name, salt in (("miss", str(i)), ("hit", None)):
            prompt = {"prompt_token_ids": [*shared, *prompts[i][:16]]} | ({"cache_salt": salt} if salt else {})
            (output,) = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=1), use_tqdm=False)
            if i >= 0:
                times[name].append(seconds_to_first_token(output))
                assert (output.num_cached_tokens > 0) == (name == "hit"), output.num_cached_tokens
    miss_s, hit_s = (statistics.median(times[name]) for name in ("miss", "hit"))
    if miss_s < MIN_RATIO * hit_s:
        bad.append("time to the first token")
    return [
        f"Time to the first token of {NUM_SHARED} shared tokens and 16 others, medians of {NUM_TIMES} alternate runs: "
        f"{1e3 * miss_s:.0f} ms without the shared tokens in the cache, {1e3 * hit_s:.0f} ms with them: "
        f"{miss_s / hit_s:.1f} times shorter (required: at least {MIN_RATIO:.0f}).",
    ]


def seconds_to_first_token(output: RequestOutput) -> float:
    metrics = output.metrics
    assert metrics is not None, "generate sets metrics"
    assert metrics.first_token_s is not None, "an output with tokens has a first one"
    return metrics.first_token_s - metrics.arrival_s
