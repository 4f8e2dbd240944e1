"""In over 100,000 random operations no page or slot is lost, and every output equals that of the request run alone.

Scheduler and engine run over a runner without arrays (jaxserve/runner/fake), in all pools and load patterns of the
tests (tests/support/fakes/scheduler_fuzz.py), which run a part of this. Operations are requests, aborts, ends, forks
and preemptions. The invariants of pages and slots are checked after each step, all tokens and log-probabilities at the
end.
"""

import argparse
import sys

from tests.support.fakes.scheduler_fuzz import HABITS, POOLS, check, fuzz

NUM_OPERATIONS = {"quiet": 300, "calm": 1500, "storm": 12_800}


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove fuzz")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="multiply the number of operations by N")
    args = parser.parse_args(argv)
    columns = "pool | load | operations | steps | rounds per step | forks | preemptions | texts compared"
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
    return "\n".join([*lines, "", f"{total} operations; all invariants hold."])
