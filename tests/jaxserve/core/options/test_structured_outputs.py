"""StructuredOutputsParams: exactly one form of the text, every field checked; equal forms have equal keys."""

import copy
import dataclasses
import json
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxserve
from jaxserve.core.errors import RequestError
from jaxserve.core.options.structured_outputs import KINDS, MAX_CHARS, MAX_CHOICES, StructuredOutputsParams

GOOD = {
    "json": {"type": "object", "properties": {"b": {}, "a": {}}},
    "regex": "[0-9]+",
    "choice": ["yes", "no"],
    "grammar": 'start: "a"+',
    "json_object": True,
    "structural_tag": {"structures": [], "triggers": []},
}
BAD = {
    "json": ["", "{", "[]", "5", [1], 5, {"a": {1, 2}}, '{"a": ' * 5000, {"a": "x" * MAX_CHARS}, '{"\\ud800": {}}'],
    "regex": ["", 5, b"a", "\ud800", "a" * (MAX_CHARS + 1)],
    "choice": [[], "yes", [""], [1], ["a"] * (MAX_CHOICES + 1), ["a" * MAX_CHARS, "b"], {"a": 1}],
    "grammar": ["", 5, ["a"]],
    "json_object": [1, "true", {}],
    "structural_tag": ["", "x", [], 5],
}
TAGS = ("reasoning_end", "reasoning_start")
FLAGS = ("disable_any_whitespace", "disable_additional_properties")


def test_the_tables_name_every_kind_and_field():
    assert tuple(GOOD) == tuple(BAD) == KINDS
    names = {field.name for field in dataclasses.fields(StructuredOutputsParams)}
    assert names == {*KINDS, *FLAGS, "whitespace_pattern", *TAGS}
    assert jaxserve.StructuredOutputsParams is StructuredOutputsParams


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_takes_good_values_and_refuses_bad_ones_by_name(name):
    assert StructuredOutputsParams(**{name: GOOD[name]}).kind == name
    for value in BAD[name]:
        with pytest.raises(RequestError, match=f"^structured_outputs {name} ") as error:
            StructuredOutputsParams(**{name: value})
        assert error.value.param == f"structured_outputs.{name}"
        assert len(str(error.value)) <= 400


def test_exactly_one_kind_is_given():
    for given_kinds in ({}, {"json_object": False}, {"regex": "a", "choice": ["b"]}, dict(GOOD)):
        with pytest.raises(RequestError, match="needs exactly one of json, regex") as error:
            StructuredOutputsParams(**given_kinds)
        assert error.value.param == "structured_outputs"
    assert StructuredOutputsParams(regex="a", json_object=False) == StructuredOutputsParams(regex="a")


def test_an_unknown_field_is_refused_with_the_one_that_it_resembles():
    with pytest.raises(RequestError, match=r"unknown field 'jso'; did you mean 'json'"):
        StructuredOutputsParams(**{"jso": {}})


@pytest.mark.parametrize("name", [*FLAGS, "whitespace_pattern"])
def test_the_options_of_json_go_with_no_other_kind(name):
    value = " ?" if name == "whitespace_pattern" else True
    for kind in KINDS:
        if kind in ("json", "json_object"):
            assert getattr(StructuredOutputsParams(**{kind: GOOD[kind], name: value}), name) == value
            continue
        with pytest.raises(RequestError, match=f"{name} goes only with json") as error:
            StructuredOutputsParams(**{kind: GOOD[kind], name: value})
        assert error.value.param == f"structured_outputs.{name}"
    for bad in (5, []):
        with pytest.raises(RequestError, match=name):
            StructuredOutputsParams(json={}, **{name: bad})


def test_whitespace_cannot_be_both_absent_and_given():
    with pytest.raises(RequestError, match="contradicts disable_any_whitespace"):
        StructuredOutputsParams(json={}, whitespace_pattern=" ", disable_any_whitespace=True)


def test_a_schema_is_an_object_or_its_text_and_keeps_the_order_of_its_keys():
    schema = GOOD["json"]
    assert json.loads(str(StructuredOutputsParams(json=schema).json)) == schema
    assert list(json.loads(str(StructuredOutputsParams(json=schema).json))["properties"]) == ["b", "a"]
    assert StructuredOutputsParams(json=json.dumps(schema)) == StructuredOutputsParams(json=schema)
    assert StructuredOutputsParams(json=True).json == "true"
    assert StructuredOutputsParams(json=False).kind == "json"


def test_equal_forms_have_equal_keys_and_others_do_not():
    made = [StructuredOutputsParams(**{name: value}) for name, value in GOOD.items()]
    made += [StructuredOutputsParams(json=GOOD["json"], **{name: True}) for name in FLAGS]
    made += [StructuredOutputsParams(json={"properties": {"a": {}, "b": {}}}), StructuredOutputsParams(json="{}")]
    assert len({params.key for params in made}) == len(made)
    for params in made:
        again = StructuredOutputsParams.read(dataclasses.asdict(params))
        assert (again, again.key) == (params, params.key)


def test_params_are_read_from_themselves_and_from_mappings():
    params = StructuredOutputsParams(choice=["a"])
    assert StructuredOutputsParams.read(params) is params
    assert StructuredOutputsParams.read({"choice": ["a"]}) == params
    assert params.choice == ("a",)
    for other in (5, "regex", [1], None):
        with pytest.raises(RequestError, match="must be a StructuredOutputsParams or an object"):
            StructuredOutputsParams.read(other)


def test_params_are_frozen_and_survive_copies_between_processes():
    params = StructuredOutputsParams(json=GOOD["json"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.json = "{}"
    assert copy.deepcopy(params) == params == pickle.loads(pickle.dumps(params))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2) | st.integers(), inner),
    max_leaves=4,
)
NAMES = st.sampled_from([*KINDS, *FLAGS, "whitespace_pattern", "other", 5])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(NAMES, ANYTHING | st.sampled_from([*GOOD.values()]), max_size=3) | ANYTHING)
def test_any_values_give_params_or_a_request_error_that_names_them(values):
    params = refused = None
    try:
        params = StructuredOutputsParams.read(values)
    except RequestError as error:
        refused = error.param or ""
    if params is None:
        assert refused is not None
        assert refused.partition(".")[0] == "structured_outputs"
    else:
        assert json.loads(params.key)
        assert StructuredOutputsParams.read(dataclasses.asdict(params)) == params


def test_a_schema_has_as_many_characters_as_an_object_and_as_a_text():
    """Escapes of others than ASCII do not count."""
    schema = {"title": "\u6587" * (MAX_CHARS // 2)}
    as_text = json.dumps(schema, ensure_ascii=False)
    assert StructuredOutputsParams(json=schema) == StructuredOutputsParams(json=as_text)
    compact = json.dumps({str(i): {} for i in range(MAX_CHARS // 16)}, separators=(",", ":"))
    StructuredOutputsParams(json=compact + " " * (MAX_CHARS - len(compact)))
