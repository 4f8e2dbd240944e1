"""OpenAI's client with forms of the output, over llguidance's grammars and random draws: what ends is in its form."""

import asyncio
import json
from typing import Literal

import pytest
from openai import BadRequestError, OpenAI
from pydantic import BaseModel, Field

from jaxserve.batch.results_journal import ResultsJournal
from jaxserve.batch.run_batch import run_batch
from jaxserve.engine.async_llm import AsyncLLM
from jaxserve.server.server_config import ServerConfig
from jaxserve.server.server_state import ServerState
from tests.support.fakes.fake_llm import all_pages_are_back
from tests.support.fakes.real_grammars import engines_with_grammars
from tests.support.serving.http_server import NAME, running

MESSAGES = [{"role": "user", "content": "x"}]
NUM_SEEDS = 6


class Item(BaseModel):
    color: Literal["red", "blue"]
    count: int = Field(ge=0, le=99)


class Basket(BaseModel):
    items: list[Item] = Field(max_length=1)
    is_full: bool


@pytest.fixture(scope="module")
def engine():
    with engines_with_grammars() as make:
        yield make


@pytest.fixture(scope="module")
def served(engine):
    with running(engine()) as server:
        yield server
    assert all_pages_are_back(server.llm)


@pytest.fixture(scope="module")
def client(served):
    with OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_answers_parse_as_the_pydantic_model(client):
    for seed in range(NUM_SEEDS):
        asked = {"model": NAME, "messages": MESSAGES, "response_format": Basket, "seed": seed, "max_tokens": 70}
        whole = client.chat.completions.parse(**asked).choices[0].message.parsed
        assert isinstance(whole, Basket)
        with client.chat.completions.stream(**asked) as stream:
            assert stream.get_final_completion().choices[0].message.parsed == whole


def test_an_object_of_any_kind_and_vllm_s_fields(client):
    for seed in range(NUM_SEEDS):
        answer = client.chat.completions.create(
            model=NAME, messages=MESSAGES, response_format={"type": "json_object"}, seed=seed, max_tokens=80
        )
        (choice,) = answer.choices
        assert choice.message.content.startswith("{")
        assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content), dict)
        body = {"structured_outputs": {"choice": ["yes", "no"]}}
        texts = client.completions.create(model=NAME, prompt="x", n=3, seed=seed, extra_body=body)
        assert {choice.text for choice in texts.choices} <= {"yes", "no"}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_schema_that_cannot_be_kept_to_is_refused_with_its_path(client, is_streamed):
    schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    with pytest.raises(BadRequestError, match="#/properties/a") as error:
        client.chat.completions.create(model=NAME, messages=MESSAGES, response_format=form, stream=is_streamed)
    assert error.value.param == "response_format"


@pytest.mark.parametrize(
    ("choice", "limit"), [("yes", {"allowed_token_ids": [98]}), ("a", {"bad_words": ["a"]})], ids=["allowed", "bad"]
)
def test_a_text_that_cannot_go_on_is_an_error_that_names_the_field(served, choice, limit):
    body = {"prompt": "x", "structured_outputs": {"choice": [choice]}, **limit}
    answer = served.post("/v1/completions", body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "structured_outputs", "grammar_failed")
    assert "no token" in error["message"]
    assert '"grammar_failed"' in served.post("/v1/completions", {**body, "stream": True}).text


def test_a_bad_schema_in_a_batch_fails_its_line_alone(engine, tmp_path):
    forms = [{"choice": ["yes", "no"]}, {"json": {"not": {}}}, {"regex": "[a-c]{3}"}, {"regex": "("}]
    lines = [
        {"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", **body}}
        for i, form in enumerate(forms)
        for body in [{"structured_outputs": form}]
    ]
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def run():
        async with AsyncLLM.from_llm(engine()) as llm:
            state = ServerState(ServerConfig(served_model_name=("m",)), ("m",))
            state.open(llm.client)
            with ResultsJournal(output, source) as journal:
                await run_batch(state, source, journal, max_inflight=4, seed=0, progress=lambda *_: None)

    asyncio.run(run())
    results = {line["custom_id"]: line for line in map(json.loads, output.read_text().splitlines())}
    assert {name: line["response"]["status_code"] for name, line in results.items()} == {
        "0": 200, "1": 400, "2": 200, "3": 400,
    }  # fmt: skip
    assert results["1"]["error"]["param"] == results["3"]["error"]["param"] == "structured_outputs"
    assert results["0"]["response"]["body"]["choices"][0]["text"] in ("yes", "no")
