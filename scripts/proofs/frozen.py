"""10,000 steps of a random mixed load on SmolLM2 compile nothing once the engine is warm, and a new shape is named.

Requests of all kinds (greedy, drawn, penalties, masks, log-probabilities of prompts and outputs, several samples) come
and go at random, some begin as others did, some are aborted. Compilations are counted by JAX's own events; a control
compiles one program and must be heard.
"""

import sys
import time

import jax
import numpy as np

from jaxserve import LLM
from jaxserve.core.buckets import Bucket
from jaxserve.core.errors import FrozenBucketError
from tests.support.random_load import Compilations, RandomLoad

NUM_STEPS = 10_000


def main(argv: list[str]) -> str:
    if argv:
        raise SystemExit("scripts/prove frozen takes no options")
    llm = LLM("smollm2-135m-instruct", max_model_len=64, max_num_seqs=8, max_num_batched_tokens=64)
    llm.warm_up()
    load = RandomLoad(llm, max_prompt_len=30, max_output_len=24)
    with Compilations() as heard:
        jax.jit(lambda x: x * 3 + 1)(np.arange(7))
        if heard.count != 1:
            raise SystemExit("failed: the control was not heard")
        heard.count = 0
        started_s = time.monotonic()
        for goal in range(NUM_STEPS // 20, NUM_STEPS + 1, NUM_STEPS // 20):
            load.run(goal)
            print(f"\r{load.num_steps} steps, {heard.count} compilations", end="", file=sys.stderr, flush=True)
        took_s = time.monotonic() - started_s
        num_compiled = heard.count
    print(file=sys.stderr)
    new = llm.parts.runner.programs.step(Bucket(48, 8, 4))
    try:
        llm.parts.runner._executables.get(new.name, lambda: new)
        raise SystemExit("failed: a new shape was compiled")
    except FrozenBucketError as error:
        caught = str(error).partition(";")[0]
    if num_compiled:
        raise SystemExit(f"failed: {num_compiled} compilations")
    if llm.stats.num_pages_free + llm.stats.num_pages_cached != llm.parts.limits.num_pages - 1:
        raise SystemExit("failed: pages are missing")
    lines = ["| | |", "|---|---|"]
    lines += [f"| {bucket} | {count} steps |" for bucket, count in load.buckets.most_common()]
    lines += [
        f"| requests | {load.num_requests}, of which {load.num_aborted} aborted |",
        f"| steps | {load.num_steps}, with {load.num_rounds} rounds, in {took_s:.0f} s |",
        f"| tokens found in the prefix cache | {llm.stats.num_cached_tokens} |",
        f"| compilations | {num_compiled} |",
        f"| a planted new shape | {caught} |",
    ]
    return "\n".join(lines)
