"""Responses are kept only where client and server want it, within a bound, each for the client that made it."""

import openai
import pytest
from openai.types.responses import ResponseItemList

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.responses_api.response_store import ResponseStore
from jaxserve.server.openai.schemas.stored_response_types import DeletedResponse, StoredItems
from tests.support.fakes.fake_llm import Reciter, fake_llm
from tests.support.serving.http_server import NAME, running
from tests.support.serving.response_schemas import check_known, check_response

ASKED = {"model": NAME, "input": "hi", "max_output_tokens": 2}
KEYS = ("one", "two")


@pytest.fixture(scope="module")
def server():
    with running(fake_llm(Reciter(264, said="abc")), response_store_bytes=1 << 20, api_key=KEYS) as server:
        yield server


@pytest.fixture
def client(server):
    with server.openai(KEYS[0]) as client:
        yield client


def get(server, path):
    return server.get(path, headers={"Authorization": f"Bearer {KEYS[0]}"})


@pytest.mark.parametrize("stream", [False, True])
def test_a_stored_response_is_read_and_deleted(server, client, stream):
    if stream:
        *_, last = client.responses.create(store=True, stream=True, **ASKED)
        made = last.response
    else:
        made = client.responses.create(store=True, **ASKED)
    assert client.responses.retrieve(made.id) == made
    check_response(get(server, f"/v1/responses/{made.id}").text)
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError, match="No response with the id"):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(made.id)


def test_nothing_is_stored_unless_asked(client):
    for fields in ({}, {"store": False}):
        made = client.responses.create(**ASKED, **fields)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id)


def test_a_response_continues_a_stored_one(client):
    """As if the client had sent all items, but without the instructions of the first."""
    first = client.responses.create(store=True, **ASKED)
    second = client.responses.create(previous_response_id=first.id, store=True, **ASKED)
    items = [{"role": "user", "content": "hi"}, *first.output, {"role": "user", "content": "hi"}]
    assert second.previous_response_id == first.id
    alone = client.responses.create(model=NAME, input=items, max_output_tokens=2)
    assert second.usage.input_tokens == alone.usage.input_tokens
    client.responses.delete(first.id)
    third = client.responses.create(previous_response_id=second.id, **ASKED)
    assert third.usage.input_tokens > second.usage.input_tokens


def test_the_items_of_a_response_are_listed_in_pages(server, client):
    items = [
        {"role": "user", "content": "a"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "h"}]},
        {"role": "assistant", "content": "b"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ]
    made = client.responses.create(model=NAME, input=items, max_output_tokens=1, store=True)
    path = f"/v1/responses/{made.id}/input_items"
    text = get(server, f"{path}?order=asc&limit=100").text
    StoredItems.model_validate_json(text)
    check_known(ResponseItemList, get(server, f"{path}?order=asc&limit=100").json())
    listed = client.responses.input_items.list(made.id, order="asc").data
    assert [item.type for item in listed] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    paged = list(client.responses.input_items.list(made.id, limit=2))
    assert [item.id for item in paged] == [item.id for item in listed[::-1]]
    for query, param in (("limit=0", "limit"), ("order=up", "order"), ("after=x", "after"), ("include=x", "include")):
        answer = get(server, f"{path}?{query}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_other_clients_do_not_see_it(server, client):
    made = client.responses.create(store=True, **ASKED)
    with server.openai(KEYS[1]) as other:
        with pytest.raises(openai.NotFoundError):
            other.responses.retrieve(made.id)
        with pytest.raises(openai.BadRequestError) as error:
            other.responses.create(previous_response_id=made.id, **ASKED)
        with pytest.raises(openai.NotFoundError):
            other.responses.delete(made.id)
    assert (error.value.param, error.value.code) == ("previous_response_id", "previous_response_not_found")
    assert client.responses.retrieve(made.id) == made


def test_an_answer_to_a_deletion_has_openai_s_form(server, client):
    made = client.responses.create(store=True, **ASKED)
    with server.http(headers={"Authorization": f"Bearer {KEYS[0]}"}) as http:
        DeletedResponse.model_validate_json(http.delete(f"/v1/responses/{made.id}").text)


def test_a_server_without_the_option_stores_nothing():
    with running(fake_llm()) as server, server.openai() as client:
        for fields, param in (({"store": True}, "store"), ({"previous_response_id": "resp_1"}, "previous_response_id")):
            with pytest.raises(openai.BadRequestError, match="--response-store-bytes") as error:
                client.responses.create(**ASKED, **fields)
            assert error.value.param == param
        with pytest.raises(openai.NotFoundError, match="--response-store-bytes"):
            client.responses.retrieve("resp_1")


def test_the_memory_is_bounded_and_the_oldest_goes_first():
    store = ResponseStore(1000)
    for i in range(50):
        store.put(None, {"id": f"r{i}", "output": []}, [{"text": "x" * 100}])
        if i:
            store.response(None, "r0")  # read again and again, it stays
        assert store._num_bytes == sum(len(a) + len(b) for a, b in store._kept.values()) <= 1000
    kept = {i for i in range(50) if (None, f"r{i}") in store._kept}
    assert kept == {0, *range(51 - len(kept), 50)}
    assert len(kept) > 3
    with pytest.raises(ApiError, match="too long to be stored"):
        store.check_room([{"text": "x" * 1000}])
    store.put(None, {"id": "r0", "output": []}, [])
    store.delete(None, "r0")
    assert (None, "r0") not in store._kept
