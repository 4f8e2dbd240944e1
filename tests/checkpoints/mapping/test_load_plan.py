"""Names and shapes are checked, and all mismatches reported together, before any weights are read."""

import re

import pytest

from checkpoints.errors import CheckpointError
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.mapping.load_plan import plan_load
from checkpoints.mapping.rules import ModelDims, Rule, Run
from checkpoints.tensor_names import gemma3_names, llama_names
from tests.checkpoints.random_models import Sizes, gguf_tensors, hf_tensors, tree

SIZES = Sizes()
FAMILIES = [(llama_names, False), (gemma3_names, True)]


def infos(spelling: str, is_gemma: bool) -> dict[str, TensorInfo]:
    tensors = hf_tensors(SIZES, is_gemma=is_gemma)
    if spelling == "hf":
        return {name: TensorInfo(name, t.shape, "F32", t.nbytes) for name, t in tensors.items()}
    written = gguf_tensors(SIZES, tensors, is_gemma=is_gemma)
    return {t.name: TensorInfo(t.name, tuple(t.shape), "F32", len(t.data)) for t in written}


def shapes(is_gemma: bool) -> dict[str, tuple[int, ...]]:
    whole = tree(SIZES, hf_tensors(SIZES, is_gemma=is_gemma), is_gemma=is_gemma)
    flat = {"embed": whole["embed"].shape, "final_norm": whole["final_norm"].shape}
    return flat | {f"layers/{kind}/{k}": v.shape for kind, leaves in whole["layers"].items() for k, v in leaves.items()}


def problems(tensors, leaf_shapes, rules) -> list[str]:
    with pytest.raises(CheckpointError) as refusal:
        plan_load("file", tensors, leaf_shapes, rules)
    lines = str(refusal.value).splitlines()
    assert re.fullmatch(r"file: its tensors do not fit the model, \d+ problems?", lines[0])
    return [line.strip() for line in lines[1:]]


@pytest.mark.parametrize("spelling", ["hf", "gguf"])
@pytest.mark.parametrize(("family", "is_gemma"), FAMILIES)
def test_each_familys_own_spelling_is_used_whole(family, is_gemma, spelling):
    tensors = infos(spelling, is_gemma)
    plan = plan_load("file", tensors, shapes(is_gemma), family.rules(spelling, SIZES.dims))
    assert sorted(a.info.name for a in plan) == sorted(tensors)


@pytest.mark.parametrize("spelling", ["hf", "gguf"])
@pytest.mark.parametrize(("family", "is_gemma"), FAMILIES)
def test_every_tensor_is_needed_and_its_absence_named(family, is_gemma, spelling):
    tensors = infos(spelling, is_gemma)
    rules = family.rules(spelling, SIZES.dims)
    for name in tensors:
        rest = {other: info for other, info in tensors.items() if other != name}
        assert problems(rest, shapes(is_gemma), rules) == [f"missing: {name}"]


def test_all_misfits_are_told_together():
    tensors = infos("hf", False)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["extra.weight"] = TensorInfo("extra.weight", (1,), "F32", 4)
    tensors["model.layers.7.mlp.up_proj.weight"] = TensorInfo("model.layers.7.mlp.up_proj.weight", (1,), "F32", 4)
    tensors["model.norm.weight"] = TensorInfo("model.norm.weight", (31,), "F32", 124)
    packed = "model.layers.0.mlp.down_proj.weight"
    tensors[packed] = TensorInfo(packed, (32, 64), "I32", 32 * 64 * 4)
    assert sorted(problems(tensors, shapes(False), llama_names.rules("hf", SIZES.dims))) == [
        f"dtype: {packed} holds integers (I32); integer quantization is not supported",
        "missing: model.layers.1.mlp.up_proj.weight",
        "shape: model.norm.weight is [31], the model needs [32]",
        "unexpected: extra.weight",
        "unexpected: model.layers.7.mlp.up_proj.weight",
    ]


def test_a_long_list_is_cut():
    lines = problems({}, shapes(False), llama_names.rules("hf", SIZES.dims))
    assert len(lines) == 21
    assert lines[-1] == "and 9 more"


def test_two_spellings_of_one_tensor_are_refused():
    tensors = infos("hf", True)
    name = "language_model.model.norm.weight"
    tensors[name] = TensorInfo(name, (32,), "F32", 128)
    assert problems(tensors, shapes(True), gemma3_names.rules("hf", SIZES.dims)) == [
        f"twice: {name} and model.norm.weight are the same tensor"
    ]


def test_a_prefixed_gemma_and_its_vision_tower_are_understood():
    tensors = {
        f"language_model.{name}": TensorInfo(f"language_model.{name}", info.shape, "BF16", info.nbytes // 2)
        for name, info in infos("hf", True).items()
    }
    name = "vision_tower.encoder.weight"
    tensors[name] = TensorInfo(name, (3,), "F32", 12)
    plan = plan_load("file", tensors, shapes(True), gemma3_names.rules("hf", SIZES.dims))
    assert len(plan) == len(tensors) - 1


@pytest.mark.parametrize(
    ("spelling", "name"), [("hf", "lm_head.weight"), ("gguf", "output.weight"), ("gguf", "rope_freqs.weight")]
)
def test_what_a_tied_model_repeats_is_left_out(spelling, name):
    tensors = infos(spelling, False) | {name: TensorInfo(name, (96, 32), "F32", 96 * 32 * 4)}
    plan = plan_load("file", tensors, shapes(False), llama_names.rules(spelling, SIZES.dims))
    assert name not in [assignment.info.name for assignment in plan]


@pytest.mark.parametrize(("spelling", "name"), [("hf", "lm_head.weight"), ("gguf", "output.weight")])
def test_an_untied_head_is_needed(spelling, name):
    sizes = SIZES.dims
    untied = ModelDims(sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, 96, sizes.layer_slots, is_tied=False)
    rules = llama_names.rules(spelling, untied)
    leaf_shapes = shapes(False) | {"lm_head": (100, 32)}
    assert problems(infos(spelling, False), leaf_shapes, rules) == [f"missing: {name}"]
    tensors = infos(spelling, False) | {name: TensorInfo(name, (96, 32), "F32", 96 * 32 * 4)}
    assert plan_load("file", tensors, leaf_shapes, rules)
    assert problems(tensors, shapes(False), rules) == [f"unexpected: {name} (the model has no lm_head)"]


def runs_of(*runs: Run):
    """A rule for one tensor `w` [rows, 4] that copies these runs to the leaf `w` [2, 6, 4]."""
    dims = ModelDims(1, 1, 2, 6, (("all", 0),))
    rows = max(run.source + run.num_rows for run in runs)
    tensors = {"w": TensorInfo("w", (rows, 4), "F32", rows * 16)}
    return tensors, {"w": (2, 6, 4)}, (Rule("w", "w", lambda dims, index, leaf: runs, dims),)


@pytest.mark.parametrize(
    "runs",
    [
        (Run(0, 6, (0,)),),
        (Run(0, 6, (0,)), Run(6, 5, (1,))),
        (Run(0, 6, (0,)), Run(6, 6, (1,)), Run(0, 6, (1,))),
        (Run(0, 6, (0,)), Run(6, 3, (1,)), Run(6, 4, (1,), target=2)),
        (Run(0, 6, (0,)), Run(6, 2, (1,)), Run(6, 3, (1,), target=3)),
        (Run(0, 6, (0,)), Run(6, 6, (2,))),
        (Run(0, 6, (0,)), Run(6, 7, (1,), num_padding=-1)),
    ],
)
def test_rules_that_fill_a_leaf_never_or_twice_are_refused(runs):
    assert any(line.startswith("unfilled: ") for line in problems(*runs_of(*runs)))


def test_rules_that_fill_a_leaf_once_are_accepted():
    assert plan_load("file", *runs_of(Run(0, 6, (0,)), Run(6, 4, (1,), num_padding=2)))


def test_a_leaf_without_a_rule_is_refused():
    lines = problems(infos("hf", False), shapes(False) | {"extra": (3,)}, llama_names.rules("hf", SIZES.dims))
    assert lines == ["unfilled: no rule fills extra"]


def test_heads_that_cannot_be_grouped_are_refused():
    with pytest.raises(ValueError, match="num_heads 9 must be a multiple of num_kv_heads x kv_repeat, 6"):
        ModelDims(9, 3, 64, 100, (("all", 0),), kv_repeat=2)
