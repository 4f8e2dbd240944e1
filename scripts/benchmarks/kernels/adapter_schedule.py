"""Counts the schedules that libtpu makes of the kernels of adapters, and compares their time with that of the bytes.

python -m scripts.benchmarks.kernels.adapter_schedule [--target v6e v5e 7x] [--page FILE.md]
python -m scripts.benchmarks.kernels.adapter_schedule --compile TOPOLOGY TOKENS ITEMS
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from jaxserve.bench import machine
from pallas_kernels.lora_matmul.adapter_layout import RANKS, AdapterLayout, Site
from pallas_kernels.lora_matmul.mosaic_tpu import adapter_stream
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import GROUP
from pallas_kernels.lora_matmul.mosaic_tpu.block_region import UNROLL
from pallas_kernels.lora_matmul.workloads import LLAMA, LLAMA_PAGE
from scripts.benchmarks.kernels.dump_schedule import dump
from scripts.benchmarks.kernels.tpu_chips import CHIPS
from scripts.benchmarks.kernels.tpu_schedule import Kernel, read_kernels
from scripts.benchmarks.report_page import as_markdown, conditions, document, listing

MODULE = "python -m scripts.benchmarks.kernels.adapter_schedule"
TITLE = """# Adapters on TPUs, counted without a TPU

**The kernels have not been run on a TPU.** libtpu compiles them for an absent TPU and dumps the resulting schedules, of
which a small model derives times, as for [attention](../kernels.md)."""
METHOD = """## How it is counted

A decode step of Llama 3 8B in bfloat16 on one device, with adapters of rank 16 at all seven products; the figures are
those of one layer. Tokens have different adapters where there are enough. *MB of adapters* are the rows of rank blocks
that the kernels multiply; each is read once. *All bytes* are these, inputs and outputs, over the bandwidth. *Bundles*
are those of all eight kernels, with all passes of their loops and the issue of copies, over the derived clock; short
loops around a long one are counted as often as that. *Time* is the sum of the longer of both, kernel by kernel. The
model has no latencies of copies: in each kernel nothing is multiplied until the first group of rank blocks has arrived,
and outputs are stored when all have been multiplied."""
HEADING = ["TPU", "tokens", "adapters", "MB of adapters", "their µs", "all bytes, µs", "bundles, µs", "time, µs"]
RANK = 16
CASES = ((8, 1), (8, 8), (64, 1), (64, 8), (64, 64))
"""(tokens, adapters)"""


def layout(num_adapters: int) -> AdapterLayout:
    num_heads, page, width = LLAMA_PAGE
    return AdapterLayout(LLAMA, num_heads * page, width, RANK, num_adapters)


def compile_sites(topology: str, num_tokens: int, num_items: int) -> None:
    """All sites, with groups of `num_items` items."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from pallas_kernels.lora_matmul import api
    from pallas_kernels.lora_matmul.lora_batch import LoraBatch
    from scripts.benchmarks.kernels.compile_op import mesh_of

    adapter_stream.SIZES = (num_items,)
    mesh, sites = mesh_of(topology), layout(num_tokens)

    def on(shape: tuple[int, ...], dtype: object = jnp.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec()))

    def add(pool, inputs, layer, places, tables):
        batch = api.plan(LoraBatch(places, tables), backend="mosaic_tpu")
        return [
            api.lora_matmul(x, pool, layer, jnp.int32(0), batch, site, backend="mosaic_tpu")
            for x, site in zip(inputs, sites.sites.values(), strict=True)
        ]

    pool = on((32, 512, *LLAMA_PAGE), jnp.bfloat16)
    inputs = [on((num_tokens, site.parts[0].num_inputs), jnp.bfloat16) for site in sites.sites.values()]
    tables = on((num_tokens + 1, sites.max_blocks, 1, sites.num_pages))
    with jax.set_mesh(mesh):
        jax.jit(add).lower(pool, inputs, on(()), on((num_tokens,)), tables).compile()


def schedules(target: str, num_tokens: int, num_items: int) -> dict[str, Kernel]:
    """By name, for groups of `num_items` items."""
    with tempfile.TemporaryDirectory() as scratch:
        sizes = CHIPS[target].topology, str(num_tokens), str(num_items)
        done = dump([sys.executable, "-m", MODULE.split()[-1], "--compile", *sizes], Path(scratch))
        found = {kernel.name: kernel for kernel in read_kernels(Path(scratch)) if "lora" in kernel.name}
    if len(found) != 2 * len(LLAMA):
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
    return found


class Op(NamedTuple):
    """One kernel of a site. num_rows: of a rank block."""

    name: str
    num_rows: int
    blocks_of_part: int
    other_bytes: int
    """Inputs and outputs of a token."""


def ops_of(site: Site) -> list[Op]:
    count, width = len(site.parts), site.width
    blocks = -(-site.parts[0].num_inputs // width)
    outputs = [-(-part.num_outputs // width) for part in site.parts]
    return [
        Op(f"lora_shrink_{site.name}", blocks * count * RANKS, blocks, 2 * blocks * width),
        Op(f"lora_expand_{site.name}", sum(outputs) * RANKS, max(outputs), 4 * sum(outputs) * width),
    ]


def group_bundles(kernel: Kernel, op: Op, num_items: int) -> int:
    """Of one group: the loop over groups, and in it the two over copies, those over column blocks and over items."""
    num_passes = max(1, op.blocks_of_part // 2 // UNROLL)
    total = 0
    for loop in kernel.loops:
        if loop.path in ("2.1", "2.2"):
            total += loop.bundles * GROUP
        elif loop.path.startswith("2."):
            is_product = any(loop.slots[slot] for slot in loop.slots if slot in ("MXU", "VPOP", "XLU"))
            total += loop.bundles * (num_passes if is_product else max(num_passes, num_items))
        elif loop.path == "2":
            total += loop.bundles
    return total


def rows_of(target: str) -> list[list[str]]:
    chip, found = CHIPS[target], {}
    rows = list[list[str]]()
    for num_tokens, num_adapters in CASES:
        num_blocks = num_adapters * RANK // RANKS
        num_items = min(num_blocks, GROUP)
        if (num_tokens, num_items) not in found:
            found[num_tokens, num_items] = schedules(target, num_tokens, num_items)
        kernels, compute_s, memory_s, time_s = found[num_tokens, num_items], 0.0, 0.0, 0.0
        adapter_bytes = 0
        for op in (op for site in layout(num_adapters).sites.values() for op in ops_of(site)):
            kernel = next(kernel for name, kernel in kernels.items() if re.match(rf"{op.name}\b", name))
            start = sum(loop.bundles for loop in kernel.loops if loop.path == "")
            bundles = start + num_blocks / num_items * group_bundles(kernel, op, num_items)
            of_blocks = num_blocks * op.num_rows * LLAMA_PAGE[2] * 2
            of_op = bundles / chip.clock_hz, (of_blocks + num_tokens * op.other_bytes) / chip.bytes_per_s
            adapter_bytes += of_blocks
            compute_s, memory_s, time_s = compute_s + of_op[0], memory_s + of_op[1], time_s + max(of_op)
        figures = [adapter_bytes / 1e6, adapter_bytes / chip.bytes_per_s * 1e6, memory_s * 1e6, compute_s * 1e6]
        rows.append([target, str(num_tokens), str(num_adapters), *(f"{x:,.1f}" for x in (*figures, time_s * 1e6))])
    return rows


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", nargs="+", choices=CHIPS, default=["v6e", "v5e"])
    parser.add_argument("--page", type=Path, metavar="FILE.md", help="written there instead of printed")
    parser.add_argument("--compile", nargs=3, metavar=("TOPOLOGY", "TOKENS", "ITEMS"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.compile:
        topology, num_tokens, num_items = args.compile
        compile_sites(topology, int(num_tokens), int(num_items))
        return
    rows = [HEADING, *(row for target in args.target for row in rows_of(target))]
    versions = listing(machine.versions(("jax", "jaxlib", "libtpu")))
    about = conditions(MODULE, argv, versions=versions, hardware="none: compiled, not run")
    page = document([TITLE, about, as_markdown(rows), METHOD])
    if args.page:
        args.page.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main(sys.argv[1:])
