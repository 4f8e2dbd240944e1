"""Hidden states of a running engine equal those of transformers, for any lengths, order and mesh."""

import jax
import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import RequestError
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.engine.tasks import hidden_states as module
from jaxserve.engine.tasks.hidden_states import hidden_states
from jaxserve.functional.forward_steps import logits
from tests.support.golden_data import FAMILIES, FOLDER, goldens
from tests.support.tiny_engines import drain, submit, tiny_engine


def states_of(parts, prompts, layers=(-1,)):
    model, prompts = parts.runner.settings.model, [Prompt(None, ids) for ids in prompts]
    return hidden_states(model, parts.runner.params, parts.input_processor, prompts, layers)


@pytest.mark.parametrize(("family", "size"), [("llama3", 1), ("qwen2", 1), ("gemma3", 1), ("gemma3", 2)])
def test_all_states_equal_those_of_transformers(family, size):
    golden = np.load(FOLDER / "hidden_states.npz")[family]
    prompt = goldens(family)[1].prompt
    (states,) = states_of(tiny_engine(family, tensor_parallel_size=size).parts, [prompt], range(len(golden)))
    assert states.dtype == np.float32
    np.testing.assert_allclose(states, golden, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_state_gives_the_logits(family):
    parts, golden = tiny_engine(family).parts, goldens(family)[2]
    (states,) = states_of(parts, [golden.prompt])
    found = jax.jit(logits, static_argnums=0)(parts.runner.settings.model, parts.runner.params, states[0])
    np.testing.assert_allclose(found, golden.logits, atol=2e-4)


def test_states_depend_on_no_other_text(monkeypatch):
    monkeypatch.setattr(module, "BATCH_TOKENS", 64)
    parts, prompts = tiny_engine("gemma3").parts, [g.prompt for g in goldens("gemma3")]
    together = states_of(parts, [*prompts, *prompts[::-1], [7] * 20], (2, -1))
    assert [s.shape[:2] for s in together] == [(2, n) for n in (1, 17, 60, 60, 17, 1, 20)]
    for prompt, states, again in zip(prompts, together, together[5:2:-1], strict=False):
        (alone,) = states_of(parts, [prompt], (2, -1))
        np.testing.assert_allclose(states, alone, atol=1e-4)
        np.testing.assert_allclose(again, alone, atol=1e-4)


def test_negative_numbers_count_from_the_end_and_may_repeat():
    (states,) = states_of(tiny_engine("llama3").parts, [[5, 6, 7]], (3, -1, -4, 0))
    np.testing.assert_array_equal(states[0], states[1])
    np.testing.assert_array_equal(states[2], states[3])
    assert not np.array_equal(states[0], states[2])


def test_one_number_and_arrays_are_layers_too():
    parts = tiny_engine("llama3").parts
    (wanted,) = states_of(parts, [[5, 6, 7]], (2,))
    for layers in (2, np.int64(2), np.array([2]), [2]):
        np.testing.assert_array_equal(states_of(parts, [[5, 6, 7]], layers)[0], wanted)
    for layers in ("2", None, 2.0, {2}, np.zeros(0, int), np.array([0.5])):
        with pytest.raises(RequestError) as refused:
            states_of(parts, [[5, 6, 7]], layers)
        assert refused.value.param == "layers"


def test_running_requests_are_unaffected():
    llm, golden = tiny_engine("llama3"), goldens("llama3")[1]
    sequence = submit(llm, golden.prompt, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
    llm.parts.engine.step()
    states_of(llm.parts, [golden.prompt])
    drain(llm)
    assert sequence.token_ids == golden.greedy[:8]


@pytest.mark.parametrize(
    ("prompts", "layers", "param"),
    [
        ([[]], (0,), "prompts"),
        ([[1, 2], [320]], (0,), "prompts"),
        ([[-1]], (0,), "prompts"),
        ([[1] * 129], (0,), "prompts"),
        ([[1]], (4,), "layers"),
        ([[1]], (-5,), "layers"),
        ([[1]], ("a",), "layers"),
        ([[1]], (), "layers"),
    ],
)
def test_bad_prompts_and_layers_are_refused_by_name(prompts, layers, param):
    with pytest.raises(RequestError) as refusal:
        states_of(tiny_engine("llama3").parts, prompts, layers)
    assert refusal.value.param == param


@pytest.mark.parametrize(("prompts", "name"), [([[1], [320]], "prompt 1: "), ([[320]], "")])
def test_an_only_prompt_has_no_number(prompts, name):
    with pytest.raises(RequestError, match=f"^{name}token id 320"):
        states_of(tiny_engine("llama3").parts, prompts)


def test_no_texts_have_no_states():
    assert states_of(tiny_engine("llama3").parts, []) == []
