"""Static figures of paged attention kernels, read from the schedules of programs compiled for a TPU target."""

import json
import re
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.kernels import rpa_checkout
from scripts.benchmarks.kernels.attention_cost import cost, packed_len
from scripts.benchmarks.kernels.bundle_model import call_bundles
from scripts.benchmarks.kernels.dump_schedule import dump
from scripts.benchmarks.kernels.inner_loops import Inner, find_inner
from scripts.benchmarks.kernels.tpu_chips import CHIPS, Chip
from scripts.benchmarks.kernels.tpu_schedule import Kernel, read_kernels
from scripts.benchmarks.kernels.workload_names import write_workload

OURS = "jaxserve"


@dataclass(frozen=True)
class Figures:
    """One kernel at one workload on one TPU, and the time model's figures of one call."""

    side: str
    workload: Workload
    target: str
    inner: Inner
    temp_bytes: int

    @property
    def chip(self) -> Chip:
        return CHIPS[self.target]

    @property
    def is_decode(self) -> bool:
        return self.workload.is_decode

    @property
    def bundles(self) -> float:
        """Bundles of 512 positions × 8 KV heads (for all query lines that the kernel processes together)."""
        return self.inner.bundles(self.workload.page_size)

    @property
    def mxu_share(self) -> float:
        """Filled share of the matrix units' slots, in the loop with most matrix work."""
        return self.inner.kernel.occupancy(self.inner.compute, "MXU")

    @property
    def ops_of_bundle(self) -> float:
        """Useful operations per bundle in entirely visible blocks; MXU slots without a useful product do not count."""
        w, inner = self.workload, self.inner
        lines = w.group_size if self.is_decode else inner.lines
        return 4 * w.head_dim * w.num_kv_heads * lines * inner.positions / inner.block_bundles(w.page_size)

    @property
    def tile_tokens(self) -> int:
        return 1 if self.is_decode else max(1, self.inner.lines // self.workload.group_size)

    @cached_property
    def compute_s(self) -> float:
        """Time of the bundles without waits."""
        return call_bundles(self.inner, self.workload, self.tile_tokens) / self.chip.clock_hz

    @cached_property
    def memory_s(self) -> float:
        """Time of the bytes at full bandwidth; pages are read once for each tile."""
        return cost(self.workload, self.tile_tokens).bytes / self.chip.bytes_per_s

    @property
    def call_s(self) -> float:
        """The longer of both times: DMAs overlap with bundles. Latencies and bank conflicts are not modelled."""
        return max(self.compute_s, self.memory_s)

    @property
    def mbu(self) -> float:
        return cost(self.workload).bytes / self.call_s / self.chip.bytes_per_s

    @property
    def mfu(self) -> float:
        return cost(self.workload).ops / self.call_s / self.chip.ops_per_s

    def record(self) -> dict:
        """The figures for a JSON file."""
        inner = self.inner
        count, num_bytes = (inner.fetch or inner.block).dmas.get("hbm_to_vmem", (0, 0))
        return {
            "side": self.side,
            "workload": self.workload.name,
            "page_size": self.workload.page_size,
            "target": self.target,
            "kernel": inner.kernel.name,
            "is_decode": self.is_decode,
            "lines": inner.lines,
            "bundles_of_512x8": round(self.bundles, 1),
            "ops_of_bundle": round(self.ops_of_bundle),
            "block_positions": inner.positions,
            "block_bundles": round(inner.block_bundles(self.workload.page_size), 1),
            "row_bundles": inner.row_bundles,
            "mxu_share": round(self.mxu_share, 4),
            "slots": inner.compute.slots,
            "vmem_bytes": inner.kernel.vmem_bytes,
            "smem_bytes": inner.kernel.smem_bytes,
            "temp_bytes": self.temp_bytes,
            "dma_bytes": num_bytes // count if count else 0,
            "dmas_of_block": inner.positions // self.workload.page_size,
            "compute_s": self.compute_s,
            "memory_s": self.memory_s,
            "mbu": round(self.mbu, 4),
            "mfu": round(self.mfu, 4),
        }


class NotCounted(Exception):
    """A workload has no figures; the message says why."""


def figures(w: Workload, target: str, checkout: Path | None = None) -> Figures:
    """Figures of jaxserve's kernel, or with a checkout of RPA v3's. Raises NotCounted with the reason."""
    if 0 < w.num_decodes < len(w.q_lens):
        raise NotCounted("a mixed batch runs two kernels: count a decode and a prefill workload instead")
    if w.softcap is not None:
        raise NotCounted("passes are counted by operations of the unit that also computes a soft cap's tanh")
    if checkout and (reason := rpa_checkout.reason_against(w)):
        raise NotCounted(reason)
    module = "compile_rpa" if checkout else "compile_op"
    extra = [str(checkout.resolve())] if checkout else []
    with tempfile.TemporaryDirectory() as scratch:
        folder, result = Path(scratch, "dump"), Path(scratch, "result.json")
        folder.mkdir()
        command = [
            sys.executable,
            "-m",
            f"scripts.benchmarks.kernels.{module}",
            CHIPS[target].topology,
            write_workload(w),
        ]
        done = dump([*command, str(result), *extra], folder)
        if not result.exists():
            raise NotCounted(f"{w.name} does not compile for {target}: {last_error(done.stderr)}")
        kernel = _pick(read_kernels(folder), w, is_rpa=checkout is not None)
        memory = json.loads(result.read_text())
    inner = find_inner(kernel, w.num_kv_heads, packed_len(w), packed_axis={"rows": 3, "lanes": 2}[w.layout])
    return Figures(rpa_checkout.NAME if checkout else OURS, w, target, inner, memory["temp_bytes"])


def last_error(text: str) -> str:
    """The last line of a traceback that names an error."""
    lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return lines[-1] if lines else "no error was reported"


def _pick(kernels: list[Kernel], w: Workload, *, is_rpa: bool) -> Kernel:
    if is_rpa:
        pattern = "RPAd-" if w.is_decode else "RPAm-"
    else:
        pattern = f"paged_attention_{'decode' if w.is_decode else 'chunks'}"
    return next(kernel for kernel in kernels if re.match(pattern, kernel.name))
