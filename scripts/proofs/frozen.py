"""10,000 steps of a random mixed load on a warm SmolLM2 engine compile nothing, and a new shape raises an error.

Requests of all kinds (greedy, sampled, with penalties, masks, log-probabilities of prompts and outputs, several
samples) arrive at random, some with a common prefix, and some are aborted. Compilations are counted by JAX's monitoring
events; a control compiles one program, which must be counted.
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
    with Compilations() as compilations:
        jax.jit(lambda x: x * 3 + 1)(np.arange(7))
        if compilations.count != 1:
            raise SystemExit("failed: the control's compilation was not counted")
        compilations.count = 0
        started_s = time.monotonic()
        for goal in range(NUM_STEPS // 20, NUM_STEPS + 1, NUM_STEPS // 20):
            load.run(goal)
            print(f"\r{load.num_steps} steps, {compilations.count} compilations", end="", file=sys.stderr, flush=True)
        took_s = time.monotonic() - started_s
        num_compiled = compilations.count
    print(file=sys.stderr)
    new = llm.parts.runner.programs.step(Bucket(48, 8, 4))
    try:
        llm.parts.runner._executables.get(new.name, lambda: new)
        raise SystemExit("failed: a new shape was compiled")
    except FrozenBucketError as error:
        message = str(error).partition(";")[0]
    if num_compiled:
        raise SystemExit(f"failed: {num_compiled} compilations")
    if llm.stats.num_pages_free + llm.stats.num_pages_cached != llm.parts.sizes.num_pages - 1:
        raise SystemExit("failed: pages are lost")
    lines = ["| | |", "|---|---|"]
    lines += [f"| {bucket} | {count} steps |" for bucket, count in load.buckets.most_common()]
    lines += [
        f"| requests | {load.num_requests}, of which {load.num_aborted} aborted |",
        f"| steps | {load.num_steps}, with {load.num_rounds} rounds, in {took_s:.0f} s |",
        f"| tokens found in the prefix cache | {llm.stats.num_cached_tokens} |",
        f"| compilations | {num_compiled} |",
        f"| error for a new shape | {message} |",
    ]
    return "\n".join(lines)
