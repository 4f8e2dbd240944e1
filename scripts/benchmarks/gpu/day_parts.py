"""The parts of the day, the cheapest proofs first, and the tasks of each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.benchmarks.gpu.task_list import Task

if TYPE_CHECKING:
    from pallas_kernels.paged_attention.workloads import Workload
    from scripts.benchmarks.gpu.benchmark_sizes import Sizes

LIMIT_S = 480
"""Of each part."""


@dataclass(frozen=True)
class Part:
    """tasks: "module:function" that lists its tasks, as `run_part.Tasks`."""

    name: str
    tasks: str


def _part(name: str) -> Part:
    return Part(name, f"{__name__}:{name}")


NAMES = "ceilings first checks tune products attention steps quantized drafts throughput peers"
PARTS = tuple(map(_part, NAMES.split()))
FIRST_BATCH, FIRST_DECODE = 64, "llama3_8b_decode_64x8k"
FIRST_CHECKS = ("llama3_8b_decode", "llama3_8b_prefill", "llama3_8b_tp4_mixed")


def ceilings(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu import attention_times

    return attention_times.ceiling_tasks(sizes_of(is_small), is_small)


def first(folder: Path, is_small: bool) -> Iterator[Task]:
    """Three checks, texts with and without graphs, decode attention and one engine step, with tile sizes as they are:
    proof that it runs at all."""
    from scripts.benchmarks.gpu import attention_times, graph_checks, reference_checks, step_times
    from scripts.benchmarks.gpu.benchmark_sizes import BACKEND

    sizes = sizes_of(is_small)
    yield from reference_checks.tasks(replace(sizes, checks=_first_checks(sizes)))
    yield from graph_checks.tasks(sizes.texts)
    decode = next((w for w in sizes.attention if w.name == FIRST_DECODE), sizes.attention[0])
    yield replace(attention_times.task(decode, BACKEND, sizes), table="first attention")
    batch = FIRST_BATCH if FIRST_BATCH in sizes.engine.batches else sizes.engine.batches[0]
    engine = replace(sizes.engine, batches=(batch,), profiled=(), backends=sizes.engine.backends[:1])
    yield from (replace(task, table="first engine") for task in step_times.tasks(engine))


def checks(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu import reference_checks
    from scripts.benchmarks.gpu.products import adapter_products, block_products, product_checks

    sizes = sizes_of(is_small)
    others = tuple(w for w in sizes.checks if w not in _first_checks(sizes))
    yield from adapter_products.checks(sizes)
    yield from block_products.checks(sizes)
    yield from product_checks.tasks(sizes)
    yield from reference_checks.tasks(replace(sizes, checks=others))


def tune(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu import tune_gpu

    return tune_gpu.tasks(sizes_of(is_small), *_tuned(folder, is_small))


def products(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu.products import adapter_products, block_products, product_times

    yield from adapter_products.tasks(sizes_of(is_small))
    yield from block_products.tasks(sizes_of(is_small))
    yield from product_times.tasks(sizes_of(is_small), *_tuned(folder, is_small))


def attention(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu import attention_times

    return attention_times.tasks(sizes_of(is_small), is_own=True)


def steps(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu import step_times

    return step_times.tasks(sizes_of(is_small).engine)


def quantized(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu import step_times

    return step_times.tasks(sizes_of(is_small).quantized)


def drafts(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu import draft_times

    return draft_times.tasks(sizes_of(is_small).drafts)


def throughput(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu import offline_throughput

    return offline_throughput.tasks(sizes_of(is_small).throughput)


def peers(folder: Path, is_small: bool) -> Iterator[Task]:
    from scripts.benchmarks.gpu import attention_times

    return attention_times.tasks(sizes_of(is_small), is_own=False)


def _first_checks(sizes: "Sizes") -> "tuple[Workload, ...]":
    return tuple(w for w in sizes.checks if w.name in FIRST_CHECKS) or sizes.checks[:1]


def _tuned(folder: Path, is_small: bool) -> tuple[Path, str]:
    """The folder of measured sizes, and the kind of device."""
    import jax

    from pallas_kernels import tuned_blocks

    return folder / "tuned" if is_small else tuned_blocks.TUNED, jax.devices()[0].device_kind


def sizes_of(is_small: bool) -> "Sizes":
    from scripts.benchmarks.gpu.benchmark_sizes import FULL, TINY

    return TINY if is_small else FULL
