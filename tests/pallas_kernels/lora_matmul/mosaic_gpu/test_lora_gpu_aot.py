"""XLA compiles the GPU kernels of `lora_matmul` for Hopper: no register is spilled, and a scan over layers carries the
pool, which nothing copies."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels.lora_matmul import api
from pallas_kernels.lora_matmul.adapter_layout import AdapterLayout, SiteShape
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.workloads import LLAMA, LLAMA_PAGE, SMOLLM2, SMOLLM2_PAGE, sites_of
from tests.support.compiled.aot import assert_in_place, compile_on, gpu_mesh, on, ptxas_report

MB = 1 << 20
MAX_REGISTERS = 96
"""Of a thread: five thread blocks and more then share a multiprocessor."""
SITES = ("qkv", "o", "gate_up", "down")


@dataclass(frozen=True)
class Case:
    """Adapters of a rank at sites of a model. page: (K, page, W2)."""

    model: tuple[SiteShape, ...]
    page: tuple[int, int, int]
    num_tokens: int
    rank: int = 16
    num_places: int = 8
    sites: tuple[str, ...] = SITES


# The tests compile two of these, `scripts/prove aot` all.
CASES = {
    "llama3_8b_64": Case(LLAMA, LLAMA_PAGE, 64, sites=("qkv",)),
    "smollm2_512": Case(SMOLLM2, SMOLLM2_PAGE, 512, rank=64, sites=("gate_up",)),
    "gemma3_1b_64": Case(sites_of(1152, 1024, 256, 6912), (1, 64, 512), 64, rank=256),
} | {
    f"{name}_{num_tokens}_all": Case(model, page, num_tokens, rank, places)
    for name, model, page in (("llama3_8b", LLAMA, LLAMA_PAGE), ("smollm2", SMOLLM2, SMOLLM2_PAGE))
    for num_tokens, rank, places in ((8, 16, 8), (64, 16, 64), (256, 64, 8), (512, 16, 8))
}


def check(name: str) -> None:
    case, mesh, num_layers = CASES[name], gpu_mesh(), 4
    num_heads, page, width = case.page
    layout = AdapterLayout(case.model, num_heads * page, width, case.rank, case.num_places)
    sites = [layout.sites[site] for site in case.sites]
    page_bytes = 2 * num_layers * math.prod(case.page)
    pool = on(mesh, (num_layers, 256 * MB // page_bytes, *case.page), jnp.bfloat16)
    tables = on(mesh, (case.num_places + 1, layout.max_blocks, 1, layout.num_pages), jnp.int32)
    rows = [on(mesh, (case.num_tokens, site.parts[0].num_inputs), jnp.bfloat16) for site in sites]

    def step(pool, tables, places, rows):
        batch = api.plan(LoraBatch(places, tables))

        def add(carry, layer):
            pool, rows = carry
            for i, site in enumerate(sites):
                added = api.lora_matmul(rows[i], pool, layer, jnp.int32(0), batch, site)
                rows = [*rows[:i], rows[i] + sum(jnp.sum(part) for part in added).astype(jnp.bfloat16), *rows[i + 1 :]]
            return (pool, rows), None

        return jax.lax.scan(add, (pool, rows), jnp.arange(num_layers, dtype=jnp.int32))[0]

    with ptxas_report() as report:
        compiled = compile_on(mesh, step, pool, tables, on(mesh, (case.num_tokens,), jnp.int32), rows, donate=(0,))
    names = [kernel.kernel for kernel in report]
    assert sorted(names) == ["lora_expand"] * len(sites) + ["lora_shrink"] * len(sites)
    assert all(kernel.spill_bytes == 0 and kernel.registers <= MAX_REGISTERS for kernel in report), report
    # Outputs in float32, and the sums of 64 rows of pages for each token, part, rank block and 8 chunks of inputs.
    needed = sum(
        4 * case.num_tokens * sum(part.num_outputs + width for part in site.parts)
        + 256 * case.num_tokens * layout.max_blocks * len(site.parts) * -(-site.parts[0].num_inputs // (8 * width))
        for site in sites
    )
    assert_in_place(compiled, pool, max_temp_bytes=2 * needed + MB)
    text = compiled.as_text()
    assert text.count(" while(") == 1, "that over layers"
    assert "conditional(" not in text


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", list(CASES)[:2])
def test_kernels_compile_without_spilling_and_leave_the_pool_in_place(name):
    check(name)


def test_other_generations_are_left_to_xla():
    mesh, site = gpu_mesh("a100"), AdapterLayout(SMOLLM2, 192, 128, 8, 1).sites["o"]
    shapes = ((8, 576), "bfloat16"), ((2, 16, 3, 64, 128), "bfloat16"), ((), "int32"), ((), "int32")
    arrays = [on(mesh, shape, dtype) for shape, dtype in shapes]
    batch = LoraBatch(on(mesh, (8,), jnp.int32), on(mesh, (2, 1, 1, site.pages.stop), jnp.int32))

    def call(x, pool, layer, group, batch):
        return api.lora_matmul(x, pool, layer, group, api.plan(batch), site)

    with ptxas_report() as report:
        compile_on(mesh, call, *arrays, batch)
    assert report == []
