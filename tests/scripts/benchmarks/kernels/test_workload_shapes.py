"""Compilation for a target takes the same arguments as a run."""

import jax
import pytest

from pallas_kernels.paged_attention.workload_arguments import build
from scripts.benchmarks.kernels.workload_names import KNOWN
from scripts.benchmarks.kernels.workload_shapes import shapes

NAMES = (
    "smollm2_decode_bfloat16",
    "llama3_8b_tp4_chunk_float8",
    "shared_kv_layer",
    "gpt_oss_20b_tp4_float8",
    "gemma3_4b_draft_trees",
    "phi3_mini_decode_int8",
)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_are_those_of_the_arguments(name):
    arrays, structs = build(KNOWN[name]), shapes(KNOWN[name])
    assert arrays.pop("spec") == structs.pop("spec")
    assert jax.tree.structure(arrays) == jax.tree.structure(structs)
    described = [(x.shape, x.dtype) for x in jax.tree.leaves(structs)]
    assert described == [(x.shape, x.dtype) for x in jax.tree.leaves(arrays)]
