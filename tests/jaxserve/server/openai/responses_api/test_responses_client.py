"""The real `openai` client on /v1/responses: texts, streams and formats, as the engine computes them."""

import openai
import pytest
from pydantic import BaseModel

from tests.support.fakes.speaking_server import speaking
from tests.support.serving.http_server import NAME
from tests.support.serving.recited_text import generated

PROMPT = "<|im_end|>[system]be short<|end|>[user]hi<|end|>[assistant]"
ASKED = {"model": NAME, "instructions": "be short", "input": "hi"}


def test_a_response_equals_the_engine_s(client):
    answer = client.responses.create(max_output_tokens=20, **ASKED)
    expected = generated(PROMPT, max_tokens=20)
    assert answer.output_text == expected.outputs[0].text
    usage, num_prompt = answer.usage, len(expected.prompt_token_ids)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (num_prompt, 20, num_prompt + 20)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.output[0].status == "incomplete"
    assert (answer.instructions, answer.max_output_tokens, answer.id[:5]) == ("be short", 20, "resp_")


def test_a_response_that_ends_by_itself_is_completed(client):
    answer = client.responses.create(extra_body={"stop": ["é"]}, **ASKED)
    assert (answer.status, answer.incomplete_details, answer.output[0].status) == ("completed", None, "completed")
    assert "é" not in answer.output_text


@pytest.mark.parametrize("stop", [None, "é", ["caf", "😀"]])
def test_streaming_equals_not_streaming(client, stop):
    for length in range(20, 24):
        asked = {**ASKED, "max_output_tokens": length, "extra_body": {"stop": stop}}
        whole = client.responses.create(**asked)
        *_, last = events = list(client.responses.create(stream=True, **asked))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == whole.output_text == last.response.output_text
        assert last.type == f"response.{whole.status}"
        assert last.response.usage.model_copy(update={"input_tokens_details": None}) == whole.usage.model_copy(
            update={"input_tokens_details": None}
        )


def test_the_client_s_helper_follows_a_stream(client):
    with client.responses.stream(extra_body={"stop": "ü"}, **ASKED) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text
    assert final.status == "completed"


def test_a_conversation_is_rendered_like_that_of_a_chat(client):
    items = [
        {"role": "developer", "content": "a"},
        {"role": "user", "content": [{"type": "input_text", "text": "b"}, {"type": "input_text", "text": "c"}]},
        {"type": "message", "role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
    ]
    answer = client.responses.create(model=NAME, input=items, max_output_tokens=1)
    text = "[system]a<|end|>[user]b\nc<|end|>[assistant]d<|end|>[user]e<|end|>[assistant]"
    assert answer.usage.input_tokens == len(generated(text, max_tokens=1).prompt_token_ids) + 1


def test_an_output_of_the_server_is_valid_input(client):
    first = client.responses.create(max_output_tokens=3, include=["message.output_text.logprobs"], **ASKED)
    items = [{"role": "user", "content": "hi"}, *first.output, {"role": "user", "content": "more"}]
    assert client.responses.create(model=NAME, input=items, max_output_tokens=1).usage.input_tokens > 20


def test_log_probabilities_equal_those_of_a_chat(client):
    messages = [{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}]
    chat = client.chat.completions.create(
        model=NAME, messages=messages, max_tokens=8, logprobs=True, top_logprobs=2
    ).choices[0]
    asked = {**ASKED, "max_output_tokens": 8, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = client.responses.create(**asked)
    found = whole.output[0].content[0].logprobs
    assert [each.model_dump() for each in found] == [each.model_dump() for each in chat.logprobs.content]
    events = client.responses.create(stream=True, **asked)
    streamed = [each for event in events if event.type == "response.output_text.delta" for each in event.logprobs]
    assert [(each.token, each.logprob) for each in streamed] == [(each.token, each.logprob) for each in found]


def test_parameters_of_sampling_are_those_of_chats(client):
    asked = {**ASKED, "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 4, "extra_body": {"seed": 3, "top_k": 5}}
    answer = client.responses.create(**asked)
    assert (answer.temperature, answer.top_p) == (0.5, 0.9)
    assert client.responses.create(**asked).output_text == answer.output_text


def test_metadata_and_user_stand_in_the_response(client):
    answer = client.responses.create(
        metadata={"a": "b"}, user="u", safety_identifier="s", prompt_cache_key="k", max_output_tokens=1, **ASKED
    )
    assert (answer.metadata, answer.user) == ({"a": "b"}, "u")
    assert (answer.safety_identifier, answer.prompt_cache_key) == ("s", "k")


class Point(BaseModel):
    x: int
    y: int


def test_pydantic_models_are_parsed_and_their_schema_is_a_constraint():
    asked = {"model": NAME, "input": "where?", "extra_body": {"seed": 0}}
    with speaking('{"x": 1, "y": 2}') as speaker, speaker.server.openai() as client:
        answer = client.responses.parse(text_format=Point, **asked)
        assert answer.output_parsed == Point(x=1, y=2)
        with client.responses.stream(text_format=Point, **asked) as stream:
            assert stream.get_final_response().output_parsed == Point(x=1, y=2)
        assert [each.kind for each in speaker.constraints] == ["json", "json"]
        assert '"additionalProperties": false' in speaker.constraints[0].json
        assert answer.text.format.name == "Point"
        client.responses.create(text={"format": {"type": "json_object"}}, **asked)
        assert speaker.constraints[-1].kind == "json_object"


def test_a_schema_that_is_refused_is_named_before_any_header(client):
    schema = {"type": "json_schema", "name": "a", "schema": {"type": "object"}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as error:
            client.responses.create(text={"format": schema}, stream=stream, **ASKED)
        assert error.value.param == "text.format"
