"""One part of the benchmark, in a process of its own: runs the tasks that have not ended and writes to the journal."""

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from scripts.benchmarks.gpu.task_list import Journal, Task, reason_of

SAME = ("device", "versions")
"""Of all results of a page."""
NO_GPU, SICK = 2, 4
"""Exit codes: there is no GPU that can go on; the device computes no more (an illegal address, say), and a new process
may."""

Tasks = Callable[[Path, bool], Iterable[Task]]  # (folder of the day, tiny sizes on a CPU)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="run_part")
    parser.add_argument("part")
    parser.add_argument("tasks", help="module:function that lists the part's tasks")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args(argv)
    import jax

    from scripts.benchmarks.gpu.environment import about, no_gpu

    try:
        device = jax.devices()[0]
    except RuntimeError as error:  # JAX_PLATFORMS names a platform that does not start
        print(f"device_day: {error}", file=sys.stderr)
        return NO_GPU
    if not args.dry_run and device.platform != "gpu":
        print(f"device_day: {no_gpu()}", file=sys.stderr)
        return NO_GPU
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    journal, found = Journal(args.folder / "journal.jsonl"), about(device.device_kind)
    if other := ", ".join(what for what in SAME if journal.about.get(what, found[what]) != found[what]):
        print(f"device_day: earlier results have another {other} ({journal.about}): add --fresh", file=sys.stderr)
        return NO_GPU
    journal.describes(found)
    module, _, function = args.tasks.partition(":")
    tasks: Tasks = getattr(import_module(module), function)
    return run(args.part, tasks(args.folder, args.dry_run), journal, is_healthy)


def run(part: str, tasks: Iterable[Task], journal: Journal, is_healthy: Callable[[], bool]) -> int:
    """Any error of a task is the reason why it has no figures: no memory, a kernel of another library that fails."""
    done = journal.done(part)
    for task in (task for task in tasks if task.name not in done):
        journal.starts(part, task.name, task.table)
        started_s = time.monotonic()
        try:
            outcome, is_failed = task.run(), False
        except Exception as error:
            outcome, is_failed = reason_of(error), not isinstance(error, NotImplementedError)
        is_doubtful = is_failed or (not isinstance(outcome, str) and bool(outcome.get("fault")))  # a check's figures
        is_sick = is_doubtful and not is_healthy()
        took_s = time.monotonic() - started_s
        journal.ends(part, task.name, task.table, took_s, outcome, is_failed=is_failed or is_sick)
        reason = f": {outcome}" if isinstance(outcome, str) else ""
        print(f"{part}: {task.name}, {took_s:.1f} s{reason}", file=sys.stderr, flush=True)
        if is_sick:
            return SICK
    journal.completes(part)
    return 0


def end_with_parent(parent: int) -> None:
    """Ends this process when its parent has ended, however that happened: it holds the GPU."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(3)


def is_healthy() -> bool:
    """Whether the device still computes."""
    import jax
    import jax.numpy as jnp

    try:
        return int(jax.block_until_ready(jnp.arange(8).sum())) == 28
    except Exception:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
