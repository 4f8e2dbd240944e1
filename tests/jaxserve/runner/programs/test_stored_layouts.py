"""Weights in a layout that is not the compiler's own: here by columns, on a CPU, whose own is by rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout

from jaxserve import LLM, SamplingParams
from jaxserve.core.hardware.mesh import make_mesh, replicated
from jaxserve.runner.programs import engine_shapes
from jaxserve.runner.programs.stored_layouts import place, stored
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL

BY_COLUMNS = Layout(major_to_minor=(1, 0))


def by_columns(leaf):
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=Format(BY_COLUMNS, leaf.sharding))


def test_a_cpu_keeps_its_own_layouts():
    mesh = make_mesh(1)
    params = {"embed": jax.ShapeDtypeStruct((4, 6), jnp.float32, sharding=replicated(mesh))}
    assert stored(params, mesh) is params


def test_only_weights_of_another_layout_are_copied():
    whole = replicated(make_mesh(1))
    params = {name: jax.device_put(np.arange(12.0).reshape(3, 4), whole) for name in ("embed", "down")}
    structs = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole) for name, leaf in params.items()}
    placed = place(params, structs | {"embed": by_columns(structs["embed"])})
    assert placed["down"] is params["down"]
    assert placed["embed"].format.layout.major_to_minor == (1, 0)
    np.testing.assert_array_equal(placed["embed"], params["down"])


@pytest.mark.thorough
def test_an_engine_loads_and_replaces_weights_in_the_stored_layout(monkeypatch):
    monkeypatch.setattr(engine_shapes, "stored", lambda params, mesh: params | {"embed": by_columns(params["embed"])})
    llm, golden = LLM(str(checkpoint("llama3")), **SMALL), goldens("llama3")[1]
    weights = jax.tree.map(np.asarray, llm.parts.runner.params)

    def tokens():
        assert llm.parts.runner.params["embed"].format.layout.major_to_minor == (1, 0)
        params = SamplingParams(temperature=0, max_tokens=len(golden.greedy), ignore_eos=True)
        (output,) = llm.generate([golden.prompt], params, use_tqdm=False)
        return output.outputs[0].token_ids

    assert tokens() == golden.greedy
    llm.update_weights(jax.tree.map(np.zeros_like, weights))
    assert tokens() != golden.greedy
    llm.update_weights(weights)
    assert tokens() == golden.greedy
