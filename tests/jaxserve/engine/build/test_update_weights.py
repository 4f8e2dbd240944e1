"""An engine with new weights equals one built with them; nothing is compiled, and no KV is kept."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.errors import RequestError
from jaxserve.engine.build.engine_weights import update_weights
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL, drain, submit

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
PROMPTS = [g.prompt for g in goldens("llama3")]


def tokens(llm):
    return [out.outputs[0].token_ids for out in llm.generate(PROMPTS, GREEDY, use_tqdm=False)]


def engine(**options):
    return LLM(str(checkpoint("llama3")), **(SMALL | options))


def other_weights(llm):
    """As host arrays: the weights with noise added."""
    rng = np.random.default_rng(0)

    def noisy(leaf):
        leaf = np.array(leaf)
        return leaf + 0.1 * rng.standard_normal(leaf.shape).astype(leaf.dtype)

    return jax.tree.map(noisy, llm.parts.runner.params)


@pytest.fixture(scope="module")
def llm():
    return engine()


def test_tokens_are_those_of_an_engine_with_these_weights_and_nothing_is_compiled():
    llm = engine(tensor_parallel_size=2)
    before, old = tokens(llm), llm.parts.runner.params
    traces = dict(llm.parts.runner.programs.traces)
    new = other_weights(llm)
    update_weights(llm.parts, new)
    after = tokens(llm)
    fresh = engine(tensor_parallel_size=2)
    fresh.parts.runner.params = jax.device_put(new, jax.tree.map(lambda leaf: leaf.sharding, old))
    assert after == tokens(fresh) != before
    update_weights(llm.parts, old)
    assert tokens(llm) == before
    assert dict(llm.parts.runner.programs.traces) == traces


def test_host_arrays_stay_their_owners(llm):
    new = other_weights(llm)
    update_weights(llm.parts, new)
    found = tokens(llm)
    for leaf in jax.tree.leaves(new):
        leaf.fill(0)
    assert tokens(llm) == found


def test_device_arrays_that_lie_as_needed_are_not_copied_and_the_old_ones_are_freed(llm):
    old = [weakref.ref(leaf) for leaf in jax.tree.leaves(llm.parts.runner.params)]
    new = jax.tree.map(lambda leaf: leaf + jnp.asarray(1, leaf.dtype), llm.parts.runner.params)
    update_weights(llm.parts, new)
    for ours, theirs in zip(jax.tree.leaves(llm.parts.runner.params), jax.tree.leaves(new), strict=True):
        assert ours.unsafe_buffer_pointer() == theirs.unsafe_buffer_pointer()
    gc.collect()
    assert not any(leaf() for leaf in old)


def stacked(params):
    """The tree with an array in place of each tuple."""
    return jax.tree.map(
        lambda leaf: np.stack(leaf) if isinstance(leaf, tuple) else leaf, params, is_leaf=lambda x: isinstance(x, tuple)
    )


def test_layers_may_be_stacked(llm):
    old, new = jax.tree.map(np.array, llm.parts.runner.params), other_weights(llm)
    assert isinstance(old["layers"]["global"]["qkv"], tuple)
    update_weights(llm.parts, new)
    expected = tokens(llm)
    update_weights(llm.parts, stacked(old))
    assert tokens(llm) != expected
    update_weights(llm.parts, stacked(new))
    assert tokens(llm) == expected
    update_weights(llm.parts, old)


def with_o(params, change):
    layers = params["layers"]["global"]
    return params | {"layers": {"global": layers | {"o": change(layers["o"])}}}


FAULTS = {
    "a dtype": (
        lambda p: p | {"embed": p["embed"].astype(jnp.bfloat16)},
        r"embed is bfloat16\[384, 48\] instead of fl",
    ),
    "a shape": (
        lambda p: p | {"embed": p["embed"][:320]},
        r"embed is float32\[320, 48\] instead of float32\[384, 48\]",
    ),
    "no leaf": (lambda p: {k: v for k, v in p.items() if k != "final_norm"}, "final_norm is missing"),
    "one more": (lambda p: p | {"lm_head": p["embed"]}, "lm_head is not one of this model's"),
    "a layer's shape": (
        lambda p: with_o(p, lambda o: (*o[:1], p["embed"], *o[2:])),
        r"layers/global/o/1 is float32\[384, 48\] instead of",
    ),
    "too few layers": (lambda p: with_o(p, lambda o: o[1:]), r"layers/global/o has \d arrays instead of \d"),
    "no array": (lambda p: p | {"embed": 1.0}, "embed is float, not an array"),
    "no tree": (lambda p: jax.tree.leaves(p), "embed is missing"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(llm, fault):
    before = llm.parts.runner.params
    change, message = FAULTS[fault]
    with pytest.raises(RequestError, match=message):
        update_weights(llm.parts, change(before))
    assert llm.parts.runner.params is before


def test_an_interrupted_call_is_repaired_by_the_next(llm, monkeypatch):
    before, new, put = tokens(llm), other_weights(llm), jax.device_put
    interrupts = iter([False, False, True])

    def put_or_stop(*args):
        if next(interrupts, False):
            raise KeyboardInterrupt
        return put(*args)

    monkeypatch.setattr(jax, "device_put", put_or_stop)
    with pytest.raises(KeyboardInterrupt):
        update_weights(llm.parts, new)
    with pytest.raises(RequestError, match="embed is missing"):
        update_weights(llm.parts, {})
    update_weights(llm.parts, new)
    assert tokens(llm) != before


def test_arrays_that_were_donated_are_refused(llm):
    new = jax.tree.map(jnp.copy, llm.parts.runner.params)
    new["final_norm"].delete()
    with pytest.raises(RequestError, match="final_norm is deleted"):
        update_weights(llm.parts, new)


def test_weights_stay_while_a_request_is_under_way(llm):
    submit(llm, PROMPTS[0], GREEDY)
    with pytest.raises(RequestError, match="no request is under way"):
        update_weights(llm.parts, llm.parts.runner.params)
    drain(llm)
    update_weights(llm.parts, llm.parts.runner.params)
