"""Holds responses against the server's own schemas, and against the types of the `openai` package."""

import json
from typing import Any

from openai.types import Completion, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.shared import ErrorObject
from pydantic import TypeAdapter

from jaxserve.server.openai.schemas.base import ErrorResponse
from jaxserve.server.openai.schemas.generated import ChatChunk, ChatResponse, CompletionChunk, CompletionResponse
from jaxserve.server.openai.schemas.others import EmbeddingResponse, ModelList

WHOLE = {"/v1/completions": CompletionResponse, "/v1/chat/completions": ChatResponse}
CHUNKS = {"/v1/completions": CompletionChunk, "/v1/chat/completions": ChatChunk}


def check_whole(path: str, body: dict[str, Any], text: str) -> dict[str, Any]:
    """A whole response of an endpoint that generates text. body: of the request."""
    WHOLE[path].model_validate_json(text)
    answer = json.loads(text)
    _check_openai(Completion if path == "/v1/completions" else ChatCompletion, _as_openai_types(path, body, answer))
    return answer


def check_stream(path: str, body: dict[str, Any], text: str) -> list[dict[str, Any]]:
    """All chunks of a stream; an error event fails."""
    *events, done, end = text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    chunks = []
    for event in events:
        data = event.removeprefix("data: ")
        CHUNKS[path].model_validate_json(data)
        chunks.append(json.loads(data))
        kind = Completion if path == "/v1/completions" else ChatCompletionChunk
        _check_openai(kind, _as_openai_types(path, body, json.loads(data)))
    return chunks


def check_error(text: str) -> dict[str, Any]:
    """The fields of an error."""
    ErrorResponse.model_validate_json(text)
    error = json.loads(text)["error"]
    _check_openai(ErrorObject, error)
    return error


def check_embeddings(text: str) -> None:
    EmbeddingResponse.model_validate_json(text)
    answer = json.loads(text)
    for each in answer["data"]:  # the package decodes base64 before it validates
        each["embedding"] = each["embedding"] if isinstance(each["embedding"], list) else [0.0]
    _check_openai(CreateEmbeddingResponse, answer)


def check_models(text: str) -> None:
    ModelList.model_validate_json(text)
    for model in json.loads(text)["data"]:
        _check_openai(Model, model)


def _check_openai(kind: Any, answer: Any) -> None:
    TypeAdapter(kind).validate_json(json.dumps(answer), strict=True)


def _as_openai_types(path: str, body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The package does not know two nulls of completions that OpenAI's service sends: the finish reason of a chunk
    before the last one, and the log-probability of an echoed prompt's first token."""
    for choice in answer["choices"] if path == "/v1/completions" else ():
        if body.get("stream"):
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        logprobs = choice["logprobs"]
        if body.get("echo") and logprobs and logprobs["token_logprobs"] and logprobs["token_logprobs"][0] is None:
            assert logprobs["top_logprobs"].pop(0) is None
            logprobs["token_logprobs"].pop(0)
    return answer
