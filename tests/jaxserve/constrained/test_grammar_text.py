"""Which texts each kind of constraint allows."""

from collections.abc import Iterator

import pytest

from jaxserve.constrained.json_schema_rules import forbid_additional_properties, parts
from jaxserve.constrained.matchers import Matchers
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from tests.jaxserve.constrained.random_walks import tokens_of
from tests.jaxserve.constrained.small_vocabulary import EOS_IDS, vocabulary

TAG = {
    "structures": [
        {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"},
        {"begin": "<f=b>", "schema": True, "end": ""},
        {"begin": '\n"é', "schema": {"enum": ["x"]}, "end": "\t\x00😀"},
    ],
    "triggers": ["<f=", "\n"],
}
NESTED = {"type": "object", "properties": {"a": {"type": "object", "properties": {"properties": {}}}}}
# Constraint, texts that are whole, texts that are not.
CASES = {
    "object": (
        {"json_object": True},
        ["{}", '{"a": {"b":[null, 1.5e3]}, "c": "\\n"}'],
        ["", "[]", "{} ", '{"a":  1}', "{"],
    ),
    "no space": ({"json_object": True, "disable_any_whitespace": True}, ['{"a":[1,2]}'], ['{"a": 1}', '{"a":[1, 2]}']),
    "own space": (
        {"json": {"items": {"type": "integer"}, "type": "array"}, "whitespace_pattern": "[ \n]{1,2}"},
        ["[1,2]", "[ 1 , 2\n]", "[ \n1]"],
        ["[   1]", "[\t1]"],
    ),
    "value": ({"json": True}, ["1", '"a"', "null", "[{}]"], ["", "a", "nul"]),
    "open object": ({"json": NESTED}, ['{"a": {"b": 1}, "c": 2}', "{}"], []),
    "closed object": (
        {"json": NESTED, "disable_additional_properties": True},
        ['{"a": {"properties": 1}}', "{}", '{"a":{}}'],
        ['{"a": {"b": 1}}', '{"c": 1}'],
    ),
    "pattern": ({"regex": r"^[^\n]\d{2}/?$"}, ["a12", "é99/", "<12"], ["a1", "\n12", "a123"]),
    "choice": ({"choice": ["a", "ab", ".", "</a>", "\t😀"]}, ["a", "ab", ".", "</a>", "\t😀"], ["", "b", "x", "\\t😀"]),
    "tag": (
        {"structural_tag": TAG},
        ["", "no tag < f", "x <f=a>12</f> y", '<f=b>[1, "<f="]z', '\n"é"x"\t\x00😀', '<f=a>1</f><f=b>1\n"é"x"\t\x00😀'],
        ["<f=c", "<f=a>x", "<f=a>1", "x\ny", "<f=a>1</f> <f="],
    ),
    "GBNF": ({"grammar": 'root ::= item+\nitem ::= "- " [a-z]+ "\\n"'}, ["- a\n- bc\n"], ["- A\n", "- a"]),
    "quoted signs": ({"grammar": 'start: "<" /<i>[^<]*/ "</"i // <x>\n# <y>'}, ["<<i>a</"], ["<i>"]),
    "within reasoning": (
        {"json": {"type": "integer"}, "reasoning_end": "</t>"},
        ["</t>1", "hm {</t>\n\n12", "<t> </t </t>1"],
        ["1", "hm", "</t>", "</t>a", "</t>1</t>2", "</t>" + 9 * " " + "1", "<t></t>1 "],
    ),
    "reasoning": (
        {"regex": r"[a-é]+\n", "reasoning_end": '</"é>', "reasoning_start": '<"é>'},
        ["a\n", '<"é></"é>é\n', '<"é>a\n<"é></"é>  a\n'],
        ["", ' <"é></"é>a\n', '<"é>a\n', '</"é>a\n', '<"é></"é>'],
    ),
    "reasoning like its form": (
        {"regex": r".+\d", "reasoning_end": "</t>\x7f", "reasoning_start": "<t>"},
        ["<t>a\n</t>\x7fb5", "<ta5", "<t5", "a5"],
        ["<t>", "<t>a5\n", "<t>a</t>5", "\na5", "<t>\n</t>\x7f"],
    ),
    "reasoning that quotes a tag": (
        {"structural_tag": TAG, "reasoning_end": "</t>", "reasoning_start": "<t>"},
        ["<t><f=a>x</t>y", "<t>\n<f=</t><f=a>12</f>", "<f=a>12</f>"],
        ["<t><f=a>x</t><f=a>x", "<f=a>x"],
    ),
    "reasoning before a grammar": (
        {"grammar": 'start: "a" reasoning\nreasoning: TEXT\nTEXT: "b"', "reasoning_end": ".", "reasoning_start": "r"},
        ["ab", "rx\n.ab"],
        ["rab", ".ab"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def matchers() -> Iterator[Matchers]:
    matchers = Matchers(vocabulary())
    yield matchers
    matchers.close()


def is_whole(matchers: Matchers, params: StructuredOutputsParams, text: str) -> bool:
    """Whether the constraint allows a text byte by byte, and then its end."""
    matchers.start(0, params, EOS_IDS)
    found = matchers.advance({0: list(text.encode())})[0]
    matchers.drop(0)
    return found.error is None and not found.forced and set(EOS_IDS) <= tokens_of(found.mask)


@pytest.mark.parametrize("name", CASES)
def test_texts_of_a_constraint(matchers, name):
    values, whole, others = CASES[name]
    params = StructuredOutputsParams(**values)
    for text in whole:
        assert is_whole(matchers, params, text), text
    for text in others:
        assert not is_whole(matchers, params, text), text


def test_the_parts_of_a_schema_are_schemas():
    """Values of `const`, `enum`, `default` and names of properties are none."""
    schema = {
        "properties": {"items": {"const": {"properties": {"a": {}}}}, "a/b~": True},
        "allOf": [{"enum": [{"not": {}}]}],
        "items": [{"if": {}}],
        "additionalProperties": False,
        "default": {"properties": {}},
    }
    assert [path for path, _ in parts(schema)] == [
        "#/properties/items",
        "#/properties/a~1b~0",
        "#/allOf/0",
        "#/items/0",
        "#/additionalProperties",
    ]
    forbid_additional_properties(schema)
    assert "additionalProperties" not in schema["properties"]["items"]["const"]
    assert list(parts("text")) == []
