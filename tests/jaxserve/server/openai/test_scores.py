"""Scores and ranks are cosines between the embeddings that /v1/embeddings gives."""

import numpy as np
import pytest

from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import NAME, running
from tests.support.serving.response_schemas import check_error

QUERY, DOCUMENTS = "a cat", ["a dog", "cats", "a cat"]


@pytest.fixture(scope="module")
def server():
    with running(fake_llm()) as server:
        yield server


@pytest.fixture(scope="module")
def cosines(server):
    """The similarity of the query and each document, from their embeddings."""
    data = server.post("/v1/embeddings", {"input": [QUERY, *DOCUMENTS]}).json()["data"]
    query, *documents = (np.array(each["embedding"]) for each in data)
    return [float(query @ document / np.linalg.norm(query) / np.linalg.norm(document)) for document in documents]


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents"), ("queries", "items")])
def test_one_text_is_scored_with_each_of_many(server, cosines, path, names):
    answer = server.post(path, dict(zip(names, (QUERY, DOCUMENTS), strict=True))).json()
    np.testing.assert_allclose([each["score"] for each in answer["data"]], cosines, atol=1e-6)
    assert [each["index"] for each in answer["data"]] == [0, 1, 2]
    assert (answer["object"], answer["model"]) == ("list", NAME)
    num_tokens = sum(map(len, (QUERY, *DOCUMENTS)))
    assert answer["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}


def test_lists_are_scored_pair_by_pair(server, cosines):
    answer = server.post("/v1/score", {"data_1": [QUERY] * 3, "data_2": DOCUMENTS}).json()
    np.testing.assert_allclose([each["score"] for each in answer["data"]], cosines, atol=1e-6)


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v2/rerank"])
def test_documents_are_ranked(server, cosines, path):
    documents = [DOCUMENTS[0], {"text": DOCUMENTS[1]}, DOCUMENTS[2]]
    results = server.post(path, {"query": QUERY, "documents": documents}).json()["results"]
    order = sorted(range(3), key=lambda i: -cosines[i])
    assert [each["index"] for each in results] == order
    assert [each["document"]["text"] for each in results] == [DOCUMENTS[i] for i in order]
    np.testing.assert_allclose([each["relevance_score"] for each in results], [cosines[i] for i in order], atol=1e-6)
    (best,) = server.post(path, {"query": QUERY, "documents": documents, "top_n": 1, "return_documents": False}).json()[
        "results"
    ]
    assert best == {"index": order[0], "relevance_score": results[0]["relevance_score"]}


BAD = [
    ("/v1/score", {"text_1": "a"}, "text_1", "send exactly one pair of fields: text_1 and text_2; queries"),
    ("/v1/score", {}, "text_1", "send exactly one pair"),
    ("/v1/score", {"text_1": "a", "text_2": "b", "items": "c"}, "items", "exactly one pair"),
    ("/v1/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "text_1", "text_1 holds 2 texts and text_2 1"),
    ("/v1/score", {"queries": "a" * 3000, "items": "a"}, "queries", "maximum context length"),
    ("/v1/rerank", {"query": "a", "documents": ["b", "c" * 120]}, "documents", "maximum context length"),
    ("/v1/rerank", {"query": "a", "documents": []}, "documents", "at least 1 item"),
    ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n", "greater than or equal to 0"),
    (
        "/invocations",
        {"propmt": "a"},
        None,
        "prompt, messages, instructions, max_output_tokens, text, previous_response_id, input, text_1",
    ),
]


@pytest.mark.parametrize(("path", "body", "param", "text"), BAD)
def test_refusals_name_the_field(server, path, body, param, text):
    answer = server.post(path, body)
    error = check_error(answer.text)
    assert answer.status_code == 400
    assert text in error["message"]
    assert error["param"] == param


INVOCATIONS = [
    ("/v1/completions", {"prompt": "a", "max_tokens": 2, "seed": 1}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 2, "seed": 1, "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "seed": 1}),
    ("/v1/embeddings", {"input": "a"}),
    ("/v1/score", {"queries": "a", "documents": "b"}),
    ("/v1/rerank", {"query": "a", "documents": ["b"]}),
]


@pytest.mark.parametrize(("path", "body"), INVOCATIONS)
def test_invocations_answers_as_the_endpoint_of_the_body(server, path, body):
    def fields(where):
        answer = server.post(where, {**body, "model": NAME}, headers={"X-Request-Id": "one"})
        assert answer.status_code == 200
        return answer.headers["content-type"], answer.text.partition('"created"')[0]

    assert fields("/invocations") == fields(path)
