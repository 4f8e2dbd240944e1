"""`InputProcessor`: seeds follow from the engine's seed and the order of arrival; every field is checked."""

from dataclasses import replace
from functools import partial

import pytest

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingOptions
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.inputs.prompt import Prompt, read_prompts
from tests.support.fakes.fake_llm import fake_llm


def processor(seed=0):
    return InputProcessor(None, (7,), vocab_size=50, max_model_len=32, max_logprobs=5, max_edits=10, seed=seed)


PLAIN = SamplingParams()


def seeds(of, count=4, params=PLAIN):
    made = [of.make([1, 2], params) for _ in range(count)]
    return [request.seed for request in of.numbered(made, of.arrive(made))]


def test_unseeded_requests_get_seeds_by_engine_seed_and_arrival():
    first, same, other = processor(1), processor(1), processor(2)
    assert seeds(first) + seeds(first) == seeds(same, 8)
    assert not set(seeds(processor(1))) & set(seeds(other))
    assert len(set(seeds(processor(3), 1000))) == 1000


def test_a_request_of_its_own_seed_keeps_it():
    assert seeds(processor(), params=SamplingParams(seed=-5)) == [2**64 - 5] * 4


def test_a_refused_request_does_not_count_as_arrived():
    one, two = processor(), processor()
    with pytest.raises(RequestError):
        one.make([99], SamplingParams())
    assert seeds(one) == seeds(two)


@pytest.mark.parametrize(("prompt_len", "room"), [(0, 1), (32, 1), (33, 0)])
def test_a_prompt_that_is_empty_or_leaves_no_room_is_refused(prompt_len, room):
    with pytest.raises(RequestError) as caught:
        processor().checked_ids([1] * prompt_len, room)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("name", ["priority", "tenant"])
def test_options_that_mean_nothing_to_the_policy_are_refused(name):
    options = SchedulingOptions(**{name: 1 if name == "priority" else "a"})
    for make in (partial(processor().make, [1], PLAIN), partial(processor().make_prefill_only, [1])):
        with pytest.raises(RequestError, match="has no effect") as caught:
            make(scheduling=options)
        assert caught.value.param == name
    assert replace(processor(), scheduling_fields=(name,)).make([1], PLAIN, scheduling=options).scheduling is options


def test_max_tokens_ends_at_the_context():
    assert processor().make([1] * 30, SamplingParams(max_tokens=16)).max_tokens == 2
    assert processor().make([1] * 30, SamplingParams(max_tokens=None)).max_tokens == 2


def test_nothing_left_to_draw_is_refused():
    params = SamplingParams(allowed_token_ids=[7], min_tokens=1)
    with pytest.raises(RequestError, match="no token could be drawn"):
        processor().make([1], params)
    assert processor().make([1], replace(params, ignore_eos=True)).stop_ids == ()


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"allowed_token_ids": [97], "bad_words": ["a"]}, ["allowed_token_ids", "bad_words"]),
        ({"allowed_token_ids": [97, 261], "bad_words": ["a"], "min_tokens": 1}, ["bad_words", "min_tokens"]),
        ({"allowed_token_ids": [97], "bad_words": ["a"], "structured_outputs": {"regex": "a"}}, ["bad_words"]),
    ],
)
def test_bad_words_that_leave_nothing_to_draw_are_refused_by_name(params, names):
    made = fake_llm().parts.input_processor
    with pytest.raises(RequestError, match="no token could be drawn") as caught:
        made.make([1], SamplingParams(**params))
    assert caught.value.param == "allowed_token_ids"
    assert [name for name in names if name not in str(caught.value)] == []


@pytest.mark.parametrize(
    "params",
    [{"allowed_token_ids": [97, 98]}, {"allowed_token_ids": [97, 261]}, {}, {"logit_bias": {98: -100}}],
)
def test_bad_words_that_leave_a_token_are_accepted(params):
    """A bias is no ban, and a word of several tokens bans none before its others are there."""
    made = fake_llm().parts.input_processor.make([1], SamplingParams(bad_words=["a", "bb"], **params))
    assert made.bad_words[0] == (97,)


def test_too_many_changed_logits_are_refused():
    with pytest.raises(RequestError, match="at most 10"):
        processor().make([1], SamplingParams(logit_bias=dict.fromkeys(range(11), 1.0)))
    ten = SamplingParams(logit_bias=dict.fromkeys(range(10), 1.0), min_tokens=1)
    with pytest.raises(RequestError, match="change 11 logits; at most 10"):
        processor().make([1], ten)
    processor().make([1], replace(ten, ignore_eos=True))


def test_forms_of_prompts():
    assert read_prompts("a") == [Prompt("a", None)]
    assert read_prompts([1, 2]) == [Prompt(None, [1, 2])]
    assert read_prompts([[1, 2], "b", {"prompt": "c", "prompt_token_ids": [3]}]) == [
        Prompt(None, [1, 2]),
        Prompt("b", None),
        Prompt("c", [3]),
    ]
    assert read_prompts([]) == []
    with pytest.raises(RequestError, match="prompt 0 is empty"):
        read_prompts([[]])


def test_half_a_surrogate_pair_in_bad_words_is_not_blamed_on_the_prompt():
    with pytest.raises(RequestError, match="bad_words has a text with half") as caught:
        fake_llm().generate("x", SamplingParams(bad_words=["a\ud800"]), use_tqdm=False)
    assert caught.value.param == "bad_words"
