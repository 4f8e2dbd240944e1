"""`update_weights` of engines with blocks and groups: packed weights of another file are served as they are, and what
does not fit is refused by name and changes nothing."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxserve.core.errors import RequestError
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_tensor import RowParts
from tests.checkpoints.quantized_builder import GROUP, gptq
from tests.end_to_end.packed import test_packed_blocks as blocks
from tests.end_to_end.packed import test_packed_groups as groups

RANDOM = np.random.default_rng(0)


def in_orders(shape):
    """Act-order in which no two matrices are alike."""
    return gptq(4, "gptq", RANDOM.permutation(shape[1]) // GROUP, shape)


def write_two(folder, name):
    """Two models of one format with other weights."""
    if name == "gguf":
        return [blocks.write_model(folder / f"{seed}.gguf", seed=seed)[0] for seed in (0, 1000)]
    make = {"gptq": in_orders, "compressed-tensors": groups.floats_and_ints}[name]
    for file in ("0", "1"):
        groups.write_model(folder / file, make)
    return [folder / "0", folder / "1"]


def tokens(module, llm):
    return [out.outputs[0].token_ids for out in llm.generate(module.PROMPTS, module.GREEDY, use_tqdm=False)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gguf", "gptq", "compressed-tensors"])
def test_tokens_are_those_of_an_engine_of_the_other_file_and_nothing_is_compiled(name, tmp_path):
    first, second = write_two(tmp_path, name)
    module = blocks if name == "gguf" else groups
    before, llm = module.texts(first, quantization="packed")
    after, other = module.texts(second, quantization="packed")
    assert after != before
    traces, params = dict(llm.parts.runner.programs.traces), llm.parts.runner.params
    is_parts = [isinstance(stack["qkv"], RowParts) for stack in params["layers"].values()]
    assert any(is_parts) == (name in ("gguf", "gptq")), "rows of other forms and orders"
    own = jax.tree.map(np.array, params)
    llm.update_weights(other.parts.runner.params)
    assert tokens(module, llm) == after
    llm.update_weights(own)
    assert tokens(module, llm) == before
    assert dict(llm.parts.runner.programs.traces) == traces


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """(an engine of blocks of several types, its texts)."""
    path, _ = blocks.write_model(tmp_path_factory.mktemp("blocks") / "mixed.gguf")
    found, llm = blocks.texts(path, quantization="packed")
    return llm, found


@pytest.fixture(scope="module")
def ordered(tmp_path_factory):
    """The same of groups in orders of their own."""
    path = tmp_path_factory.mktemp("groups") / "model"
    groups.write_model(path, in_orders)
    found, llm = groups.texts(path, quantization="packed")
    return llm, found


def changed(params, stack, leaf, change):
    """The tree with another value of a matrix."""
    of_stack = params["layers"][stack]
    return params | {"layers": params["layers"] | {stack: of_stack | {leaf: change(of_stack[leaf])}}}


def down(change):
    return lambda params: changed(params, "global_0", "down", change)


def field(name, change):
    """Changes a field's arrays."""
    return lambda blocks: replace(blocks, fields=blocks.fields | {name: change(blocks.fields[name])})


BLOCK_FAULTS = {
    "no tree": (lambda params: None, "embed/fields/codes is missing"),
    "dense": (
        down(lambda down: tuple(np.zeros((256, 512), np.float32) for _ in range(2))),
        r"layers/global_0/down is dense instead of Q4_1 \(float32\)$",
    ),
    "another type": (
        lambda params: params | {"embed": replace(params["embed"], form=GGML_FORMS["Q4_0"])},
        r"embed is Q4_0 \(float32\) instead of Q8_0 \(float32\)$",
    ),
    "other blocks of the same name": (
        down(lambda down: replace(down, form=replace(down.form, zero=1))),
        r"layers/global_0/down is of other blocks of this name instead of Q4_1 \(float32\)$",
    ),
    "values of another dtype": (
        down(lambda down: replace(down, dtype="bfloat16")),
        r"layers/global_0/down is Q4_1 \(bfloat16\) instead of Q4_1 \(float32\)$",
    ),
    "an order": (
        down(lambda down: replace(down, order=np.zeros((2, 512), np.int32))),
        r"down is Q4_1 \(float32, in an order\) instead of Q4_1 \(float32\)$",
    ),
    "scales of another dtype": (
        down(field("scales", lambda scales: tuple(np.asarray(s, np.float32) for s in scales))),
        r"layers/global_0/down/fields/scales/0 is float32\[256, 16\] instead of float16\[256, 16\]",
    ),
    "codes of another shape": (
        down(field("nibbles", lambda codes: (codes[0], codes[1][:, :-1]))),
        r"layers/global_0/down/fields/nibbles/1 is uint8\[256, 255\] instead of uint8\[256, 256\]$",
    ),
    "no scales": (
        down(lambda down: replace(down, fields={k: v for k, v in down.fields.items() if k != "scales"})),
        "layers/global_0/down/fields/scales is missing$",
    ),
    "too few layers": (
        down(field("nibbles", lambda codes: codes[:1])),
        "layers/global_0/down/fields/nibbles has 1 arrays instead of 2$",
    ),
    "parts of other types": (
        lambda params: changed(params, "global_1", "qkv", lambda qkv: RowParts(qkv.parts[::-1])),
        r"qkv is Q8_0 \(float32\) \+ Q5_0 \(float32\) \+ Q5_0 \(float32\) instead of Q5_0 \(float32\) \+ Q5_0",
    ),
    "a part of another shape": (
        lambda params: changed(params, "global_1", "qkv", lambda qkv: RowParts((qkv.parts[1], *qkv.parts[1:]))),
        r"qkv/parts/0/fields/nibbles/0 is uint8\[2, 64, 128\] instead of uint8\[2, 128, 128\]",
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", BLOCK_FAULTS)
def test_blocks_that_do_not_fit_are_refused_by_name(mixed, fault):
    refused(blocks, mixed, *BLOCK_FAULTS[fault])


GROUP_FAULTS = {
    "no order": (
        lambda params: changed(params, "global", "down", lambda down: replace(down, order=None)),
        r"down is \S+ .*\(float32\) instead of .*\(float32, in an order\)$",
    ),
    "an order of another shape": (
        lambda params: changed(params, "global", "down", lambda down: replace(down, order=down.order[:, 1:])),
        r"layers/global/down/order is int32\[2, 255\] instead of int32\[2, 256\]$",
    ),
}


@pytest.mark.parametrize("fault", GROUP_FAULTS)
def test_groups_that_do_not_fit_are_refused_by_name(ordered, fault):
    refused(groups, ordered, *GROUP_FAULTS[fault])


def refused(module, engine, change, message):
    """By a message of one line of moderate length; the engine goes on as before."""
    llm, before = engine
    with pytest.raises(RequestError, match=message) as refusal:
        llm.update_weights(change(llm.parts.runner.params))
    assert refusal.value.param == "params"
    assert len(str(refusal.value)) < 1000
    assert tokens(module, llm) == before
