"""docs/responses_api.md matches the code: its tables are compared with it, and its examples run."""

import re
from typing import get_args

import pytest

from jaxserve.server.openai.requests.generation_fields import GenerationFields
from jaxserve.server.openai.responses_api.input_item_schema import INPUT_ROLES, ITEMS
from jaxserve.server.openai.responses_api.responses_body import LOGPROBS, MAX_METADATA, ResponsesBody
from jaxserve.server.openai.responses_api.text_format import FORMATS
from jaxserve.server.openai.responses_api.unbuilt_fields import INSTEAD
from jaxserve.server.openai.schemas.response_event_types import EVENTS
from jaxserve.text.message_schema import MAX_MESSAGES
from tests.docs.test_serving_manual import code
from tests.end_to_end.api.test_recipes import blocks
from tests.repository.modules import ROOT
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

PAGE = (ROOT / "docs" / "responses_api.md").read_text(encoding="utf-8")


def section(heading):
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return found


def rows(heading):
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def test_every_field_is_listed():
    own = {name for row in rows("Fields") for name in code(row[0])}
    assert own == set(ResponsesBody.model_fields) - set(GenerationFields.model_fields)
    paragraphs = section("Fields").split("\n\n")
    (shared,) = [each for each in paragraphs if each.startswith("These fields are as in chats")]
    (unbuilt,) = [each for each in paragraphs if each.startswith("Not built")]
    assert set(code(shared)) == set(GenerationFields.model_fields)
    assert set(code(unbuilt)) == set(INSTEAD)


def test_limits_and_words_are_those_of_the_code():
    fields = {code(row[0])[0]: row[2] for row in rows("Fields")}
    assert str(MAX_MESSAGES) in fields["input"]
    assert str(MAX_METADATA) in fields["metadata"]
    assert set(FORMATS) <= set(code(fields["text"]))
    assert code(fields["include"]) == [LOGPROBS]


def test_every_type_of_items_is_listed():
    listed = {name for row in rows("Items") for name in code(row[0])}
    assert listed == set(ITEMS)
    assert set(INPUT_ROLES) <= set(code(rows("Items")[0][1]))


def test_every_event_is_listed():
    listed = {name for row in rows("Streams") for name in code(row[0])}
    assert listed == {name for event in EVENTS for name in get_args(event.model_fields["type"].annotation)}


@pytest.fixture(scope="module")
def server():
    """Of the module, since a server that starts within a test logs to what captures that test's output."""
    with running(fake_llm(max_model_len=320)) as server:
        yield server


def test_the_examples_run(server, capsys):
    namespace = {"__name__": "page"}
    for line, source in blocks(PAGE):
        there = source.replace("http://127.0.0.1:8000", server.url).replace("smollm2-135m-instruct", "fake")
        exec(compile("\n" * (line - 1) + there, "docs/responses_api.md", "exec"), namespace)
        assert capsys.readouterr().out.strip()
