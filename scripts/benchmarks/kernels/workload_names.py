"""Workloads by name, and their JSON form for other processes."""

import json
from dataclasses import asdict, replace
from typing import Any

from pallas_kernels.paged_attention.workloads import BENCH_WORKLOADS, WORKLOADS, Workload

KNOWN = {w.name: w for w in (*BENCH_WORKLOADS, *WORKLOADS)}


HELP = (
    f"all (of real models' sizes), or any of: {', '.join(KNOWN)}; with @64 or @128 behind it, with pages of that size"
)


def workloads(names: list[str]) -> list[Workload]:
    """Those of these names: "all" is every one of a real model's size, and "name@128" one with pages of 128 positions.

    Raises ValueError with a message that lists the names.
    """
    found = []
    for name, at, page_size in (name.partition("@") for name in names):
        if name != "all" and name not in KNOWN:
            raise ValueError(f"no workload is called {name}; there are: all, {', '.join(KNOWN)}")
        if at and (not page_size.isdecimal() or int(page_size) < 1):
            raise ValueError(f"{name}@{page_size}: behind @ stands a number of positions, as in {name}@128")
        for w in BENCH_WORKLOADS if name == "all" else [KNOWN[name]]:
            found.append(replace(w, page_size=int(page_size)) if at else w)
    return found


def write_workload(w: Workload) -> str:
    return json.dumps(asdict(w))


def read_workload(text: str) -> Workload:
    """By name, or as `write_workload` wrote it."""
    if text in KNOWN:
        return KNOWN[text]
    fields: dict[str, Any] = json.loads(text)
    return Workload(**{**fields, "q_lens": tuple(fields["q_lens"]), "kv_lens": tuple(fields["kv_lens"])})
