"""Over a hundred thousand random operations no page or slot is lost, and every output is what a lone run gives.

The scheduler and the engine over a runner without arrays (jaxserve/runner/fake), in all pools and with all habits of
the tests (tests/support/fakes/scheduler_fuzz.py), which do a part of it. Operations are requests, aborts, ends, forks,
preemptions. After each step the laws of pages and slots are checked, at the end each token and log-probability.
"""

import argparse
import sys

from tests.support.fakes.scheduler_fuzz import HABITS, POOLS, check, fuzz

NUM_OPERATIONS = {"quiet": 300, "calm": 1500, "storm": 12_800}


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove fuzz")
    parser.add_argument("--seed", type=int, default=0, help="of all draws (default: 0)")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="so many times as many operations")
    args = parser.parse_args(argv)
    columns = "pool | habits | operations | steps | rounds a step | forks | preemptions | texts compared"
    lines = [f"| {columns} |", "|---" * 8 + "|"]
    total = 0
    for pool in POOLS:
        for habits, wanted in NUM_OPERATIONS.items():
            done = fuzz(pool, args.seed, **HABITS[habits] | {"num_operations": wanted * args.times})
            check(pool, habits, done)
            watch, num_preemptions = done.watch, done.engine.scheduler.stats.num_preemptions
            total += done.num_operations
            counts = [done.num_operations, watch.num_steps, f"{watch.num_rounds / watch.num_steps:.2f}"]
            counts += [watch.num_forks, num_preemptions, sum(map(len, done.added))]
            lines.append(f"| {pool} | {habits} | {' | '.join(map(str, counts))} |")
            print(lines[-1], file=sys.stderr)
    return "\n".join([*lines, "", f"{total} operations; all laws hold."])
