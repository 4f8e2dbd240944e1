"""libtpu compiles the kernels of adapters for every TPU; a scan over layers reads their pages where they are."""

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels.lora_matmul import api
from pallas_kernels.lora_matmul.adapter_layout import AdapterLayout
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.workloads import LLAMA, LLAMA_PAGE, SMOLLM2, SMOLLM2_PAGE
from pallas_kernels.page_ops.api import write
from tests.support.compiled.aot import assert_in_place, compile_on, on, tpu_mesh

MB = 1 << 20
LAYERS = 32
MODELS = {"Llama 3 8B": (LLAMA, LLAMA_PAGE), "SmolLM2": (SMOLLM2, SMOLLM2_PAGE)}
SITES = ("qkv", "o", "gate_up", "down")


def layout_of(model):
    shapes, (num_heads, page, width) = MODELS[model]
    return AdapterLayout(shapes, num_heads * page, width, max_rank=16, num_places=8)


def compiled_layers(topology, model, num_tokens, names, backend="auto"):
    """(the program, its pool): in each layer these sites add to their inputs, and tokens are written to the pool."""
    mesh, layout, page_shape = tpu_mesh(topology), layout_of(model), MODELS[model][1]
    num_heads, page, width = page_shape
    pool = on(mesh, (LAYERS, 2**30 // (LAYERS * num_heads * page * width * 2), *page_shape), "bfloat16")
    sites = [layout.sites[name] for name in names]
    inputs = {site.name: on(mesh, (num_tokens, site.parts[0].num_inputs), "bfloat16") for site in sites}
    tables = on(mesh, (9, layout.max_blocks, 1, layout.num_pages), jnp.int32)
    places, group = on(mesh, (num_tokens,), jnp.int32), on(mesh, (), jnp.int32)

    def run(pool, inputs, places, tables, group):
        batch = api.plan(LoraBatch(places, tables), backend=backend)

        def of_layer(carry, layer):
            pool, inputs = carry
            added = {}
            for site in sites:
                x = inputs[site.name]
                parts = api.lora_matmul(x, pool, layer, group, batch, site, backend=backend)
                added[site.name] = x + sum(part.sum(1, keepdims=True) for part in parts).astype(jnp.bfloat16)
            k = jnp.broadcast_to(added[names[0]][:, None, :1], (num_tokens, num_heads, width // 2))
            pool = write(pool, layer, k, k, places, 0, num_tokens, backend="mosaic_tpu")
            return (pool, added), None

        return jax.lax.scan(of_layer, (pool, inputs), jnp.arange(LAYERS, dtype=jnp.int32))[0]

    return compile_on(mesh, run, pool, inputs, places, tables, group, donate=(0,)), pool


def check_layers(topology, model, num_tokens, names=SITES):
    compiled, pool = compiled_layers(topology, model, num_tokens, names)
    text, sites = compiled.as_text(), layout_of(model).sites
    assert "lora_shrink" in text
    assert "lora_expand" in text
    input_bytes = sum(2 * num_tokens * sites[name].parts[0].num_inputs for name in names)
    output_bytes = max(4 * num_tokens * sum(part.num_outputs for part in sites[name].parts) for name in names)
    assert_in_place(compiled, pool, max_temp_bytes=2 * (input_bytes + output_bytes) + 4 * MB)


@pytest.mark.parametrize(
    ("topology", "model", "num_tokens", "names"),
    [
        ("v5e:2x2", "SmolLM2", 8, ("qkv",)),
        ("tpu7x:2x2x1", "Llama 3 8B", 512, ("down",)),
    ],
)
def test_adapters_are_read_from_the_donated_pool(topology, model, num_tokens, names):
    check_layers(topology, model, num_tokens, names)


def check_that_xla_gathers():
    """The control of `check_layers`: XLA copies the pages of each row's adapter."""
    compiled, _ = compiled_layers("v6e:2x2", "Llama 3 8B", 64, ("gate_up",), backend="xla")
    assert compiled.memory_analysis().temp_size_in_bytes > 64 * 2**18
