"""Constraints that cannot be honoured are refused with a reason, and none takes more than its time and memory."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jaxserve.constrained.grammar_compiler import GrammarCompiler
from jaxserve.core.errors import QueueFullError, RequestError
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from tests.jaxserve.constrained.small_vocabulary import vocabulary
from tests.support.processes.children import recorded

SLOW = {"json": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(5000)}}}
TAG = {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f"]}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def definitions(count: int) -> dict[str, Any]:
    """Schemas that refer to each other in many ways."""
    parts = [{"anyOf": [{"$ref": f"#/$defs/d{(i * k + 1) % count}"} for k in range(3)]} for i in range(count)]
    return {"$defs": {f"d{i}": part for i, part in enumerate(parts)}, "$ref": "#/$defs/d0"}


HONOURED = {
    "any value": {"json": True},
    "any object": {"json_object": True},
    "deep": {"json": nested(63)},
    "many names": {"json": {"enum": [f"name {i}" for i in range(10_000)]}},
    "many choices": {"choice": ["ab" * 50 + str(i) for i in range(1024)]},
    "repetition": {"regex": "(a{1,1000}){1,1000}"},
    "states": {"regex": "(?:a|b)*a(?:a|b){2000}"},
    "tag": {"structural_tag": TAG},
    "whitespace": {"json_object": True, "whitespace_pattern": "[ \n]{0,3}"},
    "lark": {"grammar": '?start: sum\n?sum: NUMBER | sum "+" NUMBER // <|x|>\n%import common.NUMBER'},
}
REFUSED = {
    "unknown keyword": (
        {"json": {"properties": {"a": {"type": "array", "items": {"uniqueItems": True}}}}},
        'json cannot be honoured: Unimplemented keys: ["uniqueItems"] (at #/properties/a/items)',
    ),
    "behind a reference": (
        {"json": {"$defs": {"a/b": {"not": {}}}, "properties": {"x": {"$ref": "#/$defs/a~1b"}}}},
        "(at #/$defs/a~1b)",
    ),
    "unsatisfiable": (
        {"json": {"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}},
        "unsatisfiable",
    ),
    "false": ({"json": False}, "the schema false describes no value"),
    "one of": ({"json": {"oneOf": [{"type": "string"}, {"minLength": 2}]}}, "oneOf constraints are not supported."),
    "remote": ({"json": {"$ref": "https://schemas.example/a"}}, "not present in a registry"),
    "circle": ({"json": {"$ref": "#"}}, "no text of this form exists"),
    "longer circle": ({"json": definitions(50)}, "no text of this form exists"),
    "too deep": ({"json": nested(64)}, "nested more than 64 deep (at #/items/items"),
    "options of the library": ({"json": {"x-guidance": {"lenient": True}}}, "'x-guidance' is not a keyword"),
    "look-around": ({"regex": "a(?=b)"}, "look-around"),
    "reference in a pattern": ({"regex": r"(a)\1"}, "backreferences are not supported"),
    "deep pattern": ({"regex": "(" * 20_000 + "a" + ")" * 20_000}, "error: exceed the maximum number of nested"),
    "lark": ({"grammar": "start: other"}, 'unknown name: "other"'),
    "gbnf": ({"grammar": "root ::= other"}, "not a GBNF grammar: Rule 'other' not found"),
    "deep gbnf": ({"grammar": f"root ::= {'(' * 3000}\"a\"{')' * 3000}"}, "not a GBNF grammar"),
    "deep lark": ({"grammar": f"start: {'(' * 20_000}\"a\"{')' * 20_000}"}, "too deeply nested"),
    "special token": ({"grammar": 'start: "<" <s>'}, "special tokens such as <s> are not part of texts"),
    "number of a token": ({"grammar": "start: /</ <[0-3]>"}, "special tokens such as <[0-3]>"),
    "takes back": ({"grammar": 'start: a\na[stop="x"]: /.*/'}, "the attribute stop takes tokens back"),
    "counts tokens": ({"grammar": 'start: a "b"\na[max_tokens=5]: /.*/'}, "the attribute max_tokens"),
    "lists of grammars": ({"grammar": '{"grammars": []}'}, "expecting rule"),
    "format": ({"structural_tag": {"type": "structural_tag", "format": {}}}, '"format" is not'),
    "no trigger": ({"structural_tag": TAG | {"triggers": ["<g"]}}, "structures[0].begin starts with none"),
    "schema of a tag": (
        {"structural_tag": TAG | {"structures": [{"begin": "<f>", "schema": {"not": {}}, "end": ""}]}},
        'Unimplemented keys: ["not"]',
    ),
    "pattern of whitespace": ({"json_object": True, "whitespace_pattern": "("}, "unclosed group"),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(vocabulary())
    yield compiler
    compiler.close()


@pytest.mark.parametrize("name", HONOURED)
def test_honoured(compiler, name):
    compiler.check(StructuredOutputsParams(**HONOURED[name]))


@pytest.mark.parametrize("reasoning", [{}, {"reasoning_end": "</t>"}], ids=["", "after reasoning"])
@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why_and_where(compiler, name, reasoning):
    values, reason = REFUSED[name][0] | reasoning, REFUSED[name][1]
    for _ in range(2):  # compiled, then remembered
        with pytest.raises(RequestError) as error:
            compiler.check(StructuredOutputsParams(**values))
        assert reason in str(error.value)
        assert error.value.param == "structured_outputs"
        assert len(str(error.value)) < 1000
        assert "backtrace" not in str(error.value)


def test_what_takes_too_long_is_killed_and_refused():
    with recorded() as children:
        compiler = GrammarCompiler(vocabulary(), time_limit_s=1.0)
        compiler.check(StructuredOutputsParams(regex="a"))
        with pytest.raises(RequestError, match="took too long: more than 1 s"):
            compiler.check(StructuredOutputsParams(**SLOW))
        compiler.check(StructuredOutputsParams(regex="b"))
        compiler.close()
    assert children.codes == [-signal.SIGKILL, -signal.SIGKILL]


def test_what_needs_too_much_memory_is_refused():
    compiler = GrammarCompiler(vocabulary(), memory_limit=16 << 20)
    compiler.check(StructuredOutputsParams(regex="a"))
    with pytest.raises(RequestError, match="needs too much memory: more than 16 MiB"):
        compiler.check(StructuredOutputsParams(regex="a" * 200_000))
    compiler.check(StructuredOutputsParams(regex="b"))
    compiler.close()


def test_a_killed_process_is_replaced_and_results_are_remembered():
    with recorded() as children:
        compiler = GrammarCompiler(vocabulary())
        compiler.check(StructuredOutputsParams(regex="a"))
        os.kill(children[0].pid, signal.SIGKILL)
        children[0].wait()
        compiler.check(StructuredOutputsParams(regex="a"))
        assert len(children) == 1
        compiler.check(StructuredOutputsParams(regex="b"))
        assert len(children) == 2
        compiler.close()
    assert None not in children.codes


def test_a_check_waits_for_others_only_so_long(monkeypatch):
    monkeypatch.setattr("jaxserve.constrained.grammar_compiler.WAIT_LIMIT_S", 0.01)
    compiler = GrammarCompiler(vocabulary())
    with compiler._compiling, pytest.raises(QueueFullError, match="try again later") as error:
        compiler.check(StructuredOutputsParams(regex="a"))
    assert (error.value.param, error.value.retry_after_s) == ("structured_outputs", 5)
    compiler.check(StructuredOutputsParams(regex="a"))
    compiler.close()


def test_threads_may_check_at_once(compiler):
    def check(i: int) -> bool:
        try:
            compiler.check(StructuredOutputsParams(regex=f"a{{{i % 7}}}" + "(?=b)" * (i % 2)))
        except RequestError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(check, range(40))) == [i % 2 == 0 for i in range(40)]
