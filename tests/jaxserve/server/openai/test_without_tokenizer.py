"""Without a tokenizer (`skip_tokenizer_init`): token ids in, token ids out; texts are refused by name."""

import json

import pytest

from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running
from tests.support.serving.response_schemas import check_error, check_stream, check_whole

IDS = {"prompt": [104, 105], "max_tokens": 4, "seed": 1}
MESSAGES = [{"role": "user", "content": "a"}]
TEXTS = [
    ("/v1/completions", {"prompt": "a"}, "prompt"),
    ("/v1/completions", {**IDS, "stop": ["a"]}, "stop"),
    ("/v1/completions", {**IDS, "bad_words": ["a"]}, "bad_words"),
    ("/v1/chat/completions", {"messages": MESSAGES}, "messages"),
    ("/v1/responses", {"input": "a"}, "input"),
    ("/v1/embeddings", {"input": "a"}, "input"),
    ("/v1/score", {"text_1": "a", "text_2": "b"}, "text_1"),
    ("/tokenize", {"prompt": "a"}, "prompt"),
    ("/detokenize", {"tokens": [1]}, "prompt"),
]


@pytest.fixture(scope="module")
def server():
    with running(fake_llm(skip_tokenizer_init=True)) as server:
        yield server


def test_token_ids_are_answered_with_those_of_the_same_model_with_a_tokenizer(server):
    found = check_whole("/v1/completions", IDS, server.post("/v1/completions", IDS).text)["choices"][0]
    with running(fake_llm()) as with_tokenizer:
        expected = with_tokenizer.post("/v1/completions", {**IDS, "return_token_ids": True}).json()["choices"][0]
    assert (found["text"], found["token_ids"], found["prompt_token_ids"]) == ("", expected["token_ids"], [104, 105])
    assert (found["finish_reason"], found["stop_reason"]) == (expected["finish_reason"], expected["stop_reason"])


def test_streams_and_log_probabilities_have_ids(server):
    body = {**IDS, "stream": True, "logprobs": 1, "echo": True}
    chunks = check_stream("/v1/completions", body, server.post("/v1/completions", body).text)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    ids = [*choices[0]["prompt_token_ids"], *(token for choice in choices for token in choice["token_ids"])]
    assert [token for choice in choices for token in choice["logprobs"]["tokens"]] == [f"token_id:{i}" for i in ids]
    assert {choice["text"] for choice in choices} == {""}
    assert len(server.post("/v1/embeddings", {"input": [104, 105]}).json()["data"]) == 1


@pytest.mark.parametrize(("path", "body", "param"), TEXTS)
def test_texts_are_refused(server, path, body, param):
    answer = server.post(path, body)
    error = check_error(answer.text)
    assert (answer.status_code, error["param"]) == (400, param), json.dumps(error)
    assert "tokenizer" in error["message"]
