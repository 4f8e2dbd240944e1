"""SamplingParams: every field is accepted or refused by name."""

import contextlib
import copy
import dataclasses
import logging
import math
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import OTHER_NAMES, UNSUPPORTED, SamplingParams
from jaxserve.core.options.structured_outputs import StructuredOutputsParams

NAMES = [field.name for field in dataclasses.fields(SamplingParams)]
BAD_NUMBERS = [math.nan, math.inf, -math.inf, "1", True, None, 10**400]
BAD_FLAGS = [0, 1, None, "true"]

# For each field: (given, stored) pairs that are accepted, and values that are refused.
FIELDS = {
    "n": ([(2, 2), (128, 128), (np.int32(3), 3)], [0, -1, 129, True, 1.0, "2", None, np.True_]),
    "presence_penalty": ([(-2, -2.0), (2.0, 2.0)], [-2.1, 2.1, *BAD_NUMBERS]),
    "frequency_penalty": ([(-2, -2.0), (np.float32(0.5), 0.5)], [-2.1, 2.1, *BAD_NUMBERS]),
    "repetition_penalty": ([(0.5, 0.5), (3, 3.0)], [0, -1.0, *BAD_NUMBERS]),
    "temperature": ([(0.7, 0.7), (0, 0.0), (2.5, 2.5)], [-0.1, *BAD_NUMBERS]),
    "top_p": ([(0.9, 0.9), (1, 1.0)], [0.0, 1.1, -0.5, *BAD_NUMBERS]),
    "top_k": ([(-1, 0), (0, 0), (50, 50)], [-2, 1.5, True, "5", None, 1 << 31]),
    "min_p": ([(0.1, 0.1), (0, 0.0), (1, 1.0)], [-0.1, 1.1, *BAD_NUMBERS]),
    "seed": ([(-1, None), (None, None), (0, 0), (-(1 << 63), -(1 << 63))], [1 << 63, 1.0, True, "7"]),
    "stop": ([("a", ("a",)), (["a", "b"], ("a", "b")), (None, ())], ["", [""], ["a"] * 65, [1], 5, "x" * 5000]),
    "stop_token_ids": ([([2, 1, 2], (2, 1)), ({7}, (7,)), (None, ())], [[-1], [True], ["1"], "12", 5, {1: 2}, [1.0]]),
    "ignore_eos": ([(True, True)], BAD_FLAGS),
    "max_tokens": ([(None, None), (1, 1)], [0, -1, 1.5, True, "16"]),
    "min_tokens": ([(16, 16)], [-1, 17, True, None, "1"]),
    "logprobs": ([(None, None), (0, 0), (-1, -1), (5, 5)], [-2, True, 1.0, "1"]),
    "prompt_logprobs": ([(None, None), (0, 0), (-1, -1)], [-2, True, 1.0]),
    "detokenize": ([(False, False)], BAD_FLAGS),
    "skip_special_tokens": ([(False, False)], BAD_FLAGS),
    "shown_special_ids": ([([2, 1, 2], (2, 1)), ((), ())], [[-1], [True], ["1"], "12", 5]),
    "spaces_between_special_tokens": ([(False, False), (True, True)], BAD_FLAGS),
    "include_stop_str_in_output": ([(True, True)], BAD_FLAGS),
    "logit_bias": (
        [({"7": 300, 8: -101.0}, {7: 100.0, 8: -100.0}), ({}, {}), (None, None)],
        [{-1: 1.0}, {"x": 1.0}, {1: math.nan}, {1: "2"}, {1.5: 1.0}, [1], "1", dict.fromkeys(range(301), 1.0)],
    ),
    "allowed_token_ids": ([([3, 1], (3, 1)), (np.arange(2), (0, 1)), (None, None)], [[], [-1], "1", 4, [None]]),
    "bad_words": ([(["damn"], ("damn",)), (None, ())], ["damn", [""], ["a"] * 129, [b"a"], 4]),
    "skip_reading_prefix_cache": ([(True, True), (None, None)], [flag for flag in BAD_FLAGS if flag is not None]),
    "structured_outputs": (
        [
            ({"regex": "a+"}, StructuredOutputsParams(regex="a+")),
            (StructuredOutputsParams(json_object=True), StructuredOutputsParams(json_object=True)),
            (None, None),
        ],
        [5, "json", {}, {"regex": "a", "json": {}}, {"jsn": {}}, {1: 2}],
    ),
    "kv_policy": ([(False, False), (None, None)], [flag for flag in BAD_FLAGS if flag is not None]),
    "speculation": ([(False, False), (None, None)], [flag for flag in BAD_FLAGS if flag is not None]),
}


def test_the_table_above_names_every_field():
    assert list(FIELDS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_field_accepts_good_values_and_refuses_bad_ones_by_name(name):
    accepted, refused = FIELDS[name]
    for given_value, stored in accepted:
        found = getattr(SamplingParams(**{name: given_value}), name)
        assert found == stored
        assert type(found) is type(stored)
    for value in refused:
        with pytest.raises(RequestError, match=name) as error:
            SamplingParams(**{name: value})
        assert error.value.param == name
        assert len(str(error.value)) < 500


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_a_field_of_other_engines_is_refused_as_known_but_unsupported(name):
    assert name not in NAMES
    with pytest.raises(RequestError, match=f"{name} is known from other engines") as error:
        SamplingParams(**{name: None})
    assert error.value.param == name


@pytest.mark.parametrize(
    ("typed", "meant"), [("temprature", "temperature"), ("stop_tokens", "stop"), *OTHER_NAMES.items()]
)
def test_a_misspelled_field_is_refused_with_the_intended_name(typed, meant):
    with pytest.raises(RequestError, match=f"'{typed}'; did you mean '{meant}"):
        SamplingParams(**{typed: 1})


def test_a_name_like_no_other_is_refused_without_a_guess():
    with pytest.raises(RequestError, match=r"^unknown sampling parameter 'zzz'$"):
        SamplingParams(**{"zzz": 1})


def test_temperatures_that_round_to_greedy_switch_the_other_filters_off():
    params = SamplingParams(temperature=1e-6, top_p=0.5, top_k=3, min_p=0.2)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.0, 1.0, 0, 0.0)
    assert params.is_greedy
    assert not SamplingParams().is_greedy


def test_greedy_samples_are_equal_so_one_is_computed():
    assert [SamplingParams(n=3, temperature=t).num_sequences for t in (0, 1e-6, 1)] == [1, 1, 3]


def test_tiny_temperatures_are_raised_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert SamplingParams(temperature=0.001).temperature == 0.01
    assert "raised to 0.01" in caplog.text
    caplog.clear()
    assert SamplingParams(temperature=0.01).temperature == 0.01
    assert caplog.text == ""


def test_stop_strings_need_text():
    with pytest.raises(RequestError, match="stop needs the text"):
        SamplingParams(stop="x", detokenize=False)


def test_values_beyond_the_model_are_refused():
    for name, value in (("stop_token_ids", [10]), ("logit_bias", {"10": 1}), ("allowed_token_ids", [1, 10])):
        with pytest.raises(RequestError, match=f"{name} has ids outside the vocabulary of 10 tokens: 10") as error:
            SamplingParams(**{name: value}).validate_for(10, 20, 100)
        assert error.value.param == name
        SamplingParams(**{name: value}).validate_for(11, 20, 100)
    for name in ("logprobs", "prompt_logprobs"):
        SamplingParams(**{name: 20}).validate_for(1000, 20, 100)
        SamplingParams(**{name: -1}).validate_for(1000, -1, 100)
        SamplingParams(**{name: -1}).validate_for(1000, 1000, 100)
        for asked in (21, -1):
            with pytest.raises(RequestError, match="max_logprobs is 20"):
                SamplingParams(**{name: asked}).validate_for(1000, 20, 100)
    with pytest.raises(RequestError, match="min_tokens 100 does not fit"):
        SamplingParams(max_tokens=None, min_tokens=100).validate_for(1000, 20, 100)


def test_params_are_frozen_and_survive_copy_pickle_and_replace():
    params = SamplingParams(stop=["a"], logit_bias={"3": 1}, seed=5, allowed_token_ids=[1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(params, "n", 2)  # noqa: B010
    assert copy.deepcopy(params) == params == pickle.loads(pickle.dumps(params))
    assert dataclasses.replace(params, seed=6) != params
    assert dataclasses.replace(dataclasses.replace(params, seed=6), seed=5) == params


def test_an_error_survives_pickling_with_its_parameter():
    error = pickle.loads(pickle.dumps(RequestError("no", "top_p")))
    assert (str(error), error.param) == ("no", "top_p")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab1", max_size=3) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("1a", max_size=2) | st.integers(), inner),
    max_leaves=4,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=4))
def test_any_values_give_params_or_a_request_error(values):
    params = None
    with contextlib.suppress(RequestError):
        params = SamplingParams(**values)
    assert params is None or dataclasses.replace(params) == params


@pytest.mark.parametrize("name", ["stop", "bad_words"])
def test_the_total_length_of_strings_is_limited(name):
    assert getattr(SamplingParams(**{name: ["ab" * 1024] * 2}), name) == ("ab" * 1024,) * 2
    with pytest.raises(RequestError, match="4098 characters; at most 4096 are allowed in all"):
        SamplingParams(**{name: ["a" * 2049] * 2})
    with pytest.raises(RequestError, match="empty string"):
        SamplingParams(**{name: ["a", ""]})


def test_ids_of_biases_that_are_negative_are_told_as_out_of_range():
    with pytest.raises(RequestError, match=r"'x': id must be an integer.*'-4': id must be between 0 and"):
        SamplingParams(logit_bias={"x": 1, "-4": 1, "5": 2})
