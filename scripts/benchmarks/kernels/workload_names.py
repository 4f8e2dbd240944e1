"""Workloads by name, and their JSON form for other processes."""

import json
from dataclasses import asdict, replace
from typing import Any

from pallas_kernels.paged_attention.workloads import BENCH_WORKLOADS, WORKLOADS, Workload

KNOWN = {w.name: w for w in (*BENCH_WORKLOADS, *WORKLOADS)}


HELP = (
    f"all (of real models' sizes), or any of: {', '.join(KNOWN)}; NAME@64 and NAME@128 set the page size in positions"
)


def workloads(names: list[str]) -> list[Workload]:
    """The workloads of these names: "all" are those of real models' sizes, "name@128" has pages of 128 positions.

    Raises ValueError with a message that lists the names.
    """
    found = []
    for name, at, page_size in (name.partition("@") for name in names):
        if name != "all" and name not in KNOWN:
            raise ValueError(f"there is no workload {name}; known are: all, {', '.join(KNOWN)}")
        if at and (not page_size.isdecimal() or int(page_size) < 1):
            raise ValueError(f"{name}@{page_size}: a page size in positions must follow @, as in {name}@128")
        for w in BENCH_WORKLOADS if name == "all" else [KNOWN[name]]:
            found.append(replace(w, page_size=int(page_size)) if at else w)
    return found


def write_workload(w: Workload) -> str:
    return json.dumps(asdict(w))


def read_workload(text: str) -> Workload:
    """The workload of this name, or of this output of `write_workload`."""
    if text in KNOWN:
        return KNOWN[text]
    fields: dict[str, Any] = json.loads(text)
    return Workload(**{**fields, "q_lens": tuple(fields["q_lens"]), "kv_lens": tuple(fields["kv_lens"])})
