"""Wiring: the times in a trace: device time by program and scope, host time by part of a step."""

from collections import defaultdict
from typing import Any

import numpy as np

from jaxserve.bench.profile.host_parts import PARTS
from jaxserve.bench.profile.profiler_trace import RunKey, Trace
from jaxserve.bench.profile.scopes import ProgramScopes
from jaxserve.bench.profile.timeline import own_times, share_time


def device_times(trace: Trace, programs: dict[str, ProgramScopes]) -> list[dict[str, Any]]:
    """For each program, the costliest first: its runs, and the milliseconds per run by scope.

    The wall time of a run is shared among the operations that run at each instant. unnamed_ms: operations without a
    scope. between_ms: time without any operation.
    """
    runs: dict[tuple[str, int], list[RunKey]] = defaultdict(list)
    for key in trace.runs:
        runs[key.module, key.program].append(key)
    times: list[dict[str, Any]] = []
    for (module, _), keys in runs.items():
        ops = {span.name for key in keys for span in trace.runs[key]}
        name, program = best_match(module, ops, programs)
        scopes: dict[str, float] = defaultdict(float)
        between_ns, walls = 0.0, list[float]()
        for key in keys:
            spans = trace.runs[key]
            walls.append(max(s.end_ns for s in spans) - min(s.start_ns for s in spans))
            shares, idle_ns = share_time(spans, program.containers)
            between_ns += idle_ns
            for op, spent_ns in shares.items():
                scopes[program.scopes.get(op, "")] += spent_ns
        each = 1e6 * len(keys)
        unnamed_ns = scopes.pop("", 0.0)
        times.append(
            {
                "name": name,
                "num_runs": len(keys),
                "p50_ms": float(np.median(walls)) / 1e6,
                "mean_ms": sum(walls) / each,
                "scopes_ms": {s: ns / each for s, ns in sorted(scopes.items(), key=lambda item: -item[1])},
                "unnamed_ms": unnamed_ns / each,
                "between_ms": between_ns / each,
            }
        )
    return sorted(times, key=lambda p: -p["num_runs"] * p["mean_ms"])


def best_match(module: str, ops: set[str], programs: dict[str, ProgramScopes]) -> tuple[str, ProgramScopes]:
    """The program with most of these operations: module names may be equal, the instructions differ."""
    known = {name: len(ops & p.scopes.keys()) for name, p in programs.items() if p.module == module or not module}
    name = max(known, key=known.__getitem__, default="")
    if not known.get(name):
        return f"another program ({module})", ProgramScopes(module, {}, frozenset())
    return name, programs[name]


def host_times(trace: Trace) -> dict[str, float]:
    """Median milliseconds over all steps of each part without the parts inside it, and "whole" for the whole step."""
    steps = [span for span in trace.host if span.name == "step"]
    samples: dict[str, list[float]] = {name: [] for name in PARTS}
    for step in steps:
        inside = [s for s in trace.host if step.start_ns <= s.start_ns and s.end_ns <= step.end_ns]
        own = own_times(inside)
        for name, values in samples.items():
            values.append(own.get(name, 0.0))
    medians = {name: float(np.median(values)) / 1e6 for name, values in samples.items() if any(values)}
    return medians | {"whole": float(np.median([s.end_ns - s.start_ns for s in steps])) / 1e6}
