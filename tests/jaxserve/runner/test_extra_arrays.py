"""Extra arrays go with their pages wherever these are copied, saved and loaded, and stay in place."""

from dataclasses import replace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.analysis.program_info import describe_program
from jaxserve.core.device_ops import DeviceOp, Forks, PageLoad, PageSave
from jaxserve.core.hardware.aot_targets import no_persistent_cache
from jaxserve.kv.kv_state import ExtraArray
from jaxserve.kv.page_copies import copy_pages
from jaxserve.models.kv_heads import kv_layout
from jaxserve.runner.programs.slot_programs import fork
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL

NUM_PAGES, HOST_PAGES, NO_SLOTS = 40, 12, np.empty(0, np.int32)
EXTRA = (ExtraArray("scales", 2, (2, 1, 16), jnp.float32), ExtraArray("seals", 1, (2, 8, 128), jnp.int8))
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
OPTIONS = SMALL | {"num_pages": NUM_PAGES, "enable_prefix_caching": True, "host_kv_cache_bytes": 2**20}


@pytest.fixture(scope="module", params=[1, 2], ids=["one device", "two devices"])
def llm(request):
    def with_extra_arrays(*args):
        return replace(kv_layout(*args), extra=EXTRA)

    with patch("jaxserve.models.model_settings.kv_layout", with_extra_arrays):
        yield LLM(str(checkpoint("llama3")), **OPTIONS, tensor_parallel_size=request.param)


def numbers(kv) -> dict[str, np.ndarray]:
    return {"pool": np.array(kv.pool), **{name: np.array(array) for name, array in kv.extra.items()}}


def filled(llm, random) -> dict[str, np.ndarray]:
    """Random numbers in all pages of all arrays."""
    runner = llm.parts.runner

    def fill(array: jax.Array) -> jax.Array:
        return jax.device_put(random.integers(-99, 99, array.shape).astype(array.dtype), array.sharding)

    runner._state = replace(runner._state, kv=jax.tree.map(fill, runner._state.kv))
    return numbers(runner._state.kv)


def random_ops(random) -> list[DeviceOp]:
    """Host pages are saved before any is loaded."""
    everything = np.arange(1, HOST_PAGES + 1, dtype=np.int32)
    ops: list[DeviceOp] = [PageSave(everything, everything)]
    for kind in random.integers(0, 3, 20):
        count = int(random.integers(1, 10))
        first, second = np.split(1 + random.permutation(NUM_PAGES - 1)[: 2 * count].astype(np.int32), 2)
        host = 1 + random.permutation(HOST_PAGES)[:count].astype(np.int32)
        ops.append((Forks(first, second, NO_SLOTS, NO_SLOTS), PageSave(first, host), PageLoad(host, second))[kind])
    return ops


def test_pages_are_the_same_in_all_arrays_after_random_ops(llm):
    random, runner = np.random.default_rng(0), llm.parts.runner
    expected, ops = filled(llm, random), random_ops(random)
    saved = {name: np.zeros((len(a), HOST_PAGES + 1, *a.shape[2:]), a.dtype) for name, a in expected.items()}
    for op in ops:
        for name, array in expected.items():
            match op:
                case Forks():
                    array[:, op.dst_pages] = array[:, op.src_pages]
                case PageSave():
                    saved[name][:, op.host_pages] = array[:, op.pages]
                case PageLoad():
                    array[:, op.pages] = saved[name][:, op.host_pages]
    runner._state = runner._ops.make(runner._state, ops)
    found = numbers(runner._state.kv)
    assert list(found) == ["pool", "scales", "seals"]
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name][:, 1:], array[:, 1:], err_msg=name)


@pytest.mark.thinned(1)
def test_steps_leave_them_as_they_are(llm):
    before = filled(llm, np.random.default_rng(1))
    outputs = llm.generate([g.prompt for g in goldens("llama3")], GREEDY, use_tqdm=False)
    assert [out.outputs[0].token_ids for out in outputs] == [g.greedy for g in goldens("llama3")]
    after = numbers(llm.parts.runner._state.kv)
    for array in EXTRA:
        np.testing.assert_array_equal(after[array.name], before[array.name])


def test_a_page_costs_what_it_takes_in_all_arrays(llm):
    num_bytes = sum(array.nbytes for array in numbers(llm.parts.runner._state.kv).values())
    assert llm.parts.spec.programs.layout.page_bytes * NUM_PAGES == num_bytes


def test_the_plan_finds_a_program_that_copies_an_extra_array(llm):
    programs = replace(llm.parts.spec.programs, num_pages=40_000)  # each array is larger than the temporaries of a fork

    def copy_and_turn(mesh, kv, *pages):
        kv = copy_pages(mesh, kv, *pages)
        return replace(kv, extra=kv.extra | {"seals": kv.extra["seals"][:, ::-1]})

    with no_persistent_cache():
        assert not describe_program(fork(programs), programs.state).problems
        with patch("jaxserve.runner.step.step.copy_pages", copy_and_turn):
            problems = describe_program(fork(programs), programs.state).problems
    assert any("arrays of the seals's shape" in problem for problem in problems)
