"""Holds responses against the server's own schemas, and against the types of the `openai` package."""

import json
from functools import cache, reduce
from operator import or_
from typing import Any

from openai.types import Completion, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.shared import ErrorObject
from pydantic import BaseModel, TypeAdapter

from jaxserve.server.openai.schemas.base import ErrorResponse
from jaxserve.server.openai.schemas.generated import ChatChunk, ChatResponse, CompletionChunk, CompletionResponse
from jaxserve.server.openai.schemas.others import EmbeddingResponse, ModelList
from jaxserve.server.openai.schemas.response_event_types import EVENTS
from jaxserve.server.openai.schemas.response_types import ApiResponse

WHOLE = {"/v1/completions": CompletionResponse, "/v1/chat/completions": ChatResponse}
CHUNKS = {"/v1/completions": CompletionChunk, "/v1/chat/completions": ChatChunk}


EVENT: Any = reduce(or_, EVENTS)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Made once: the package's type of events takes a second."""
    return TypeAdapter(kind)


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


def check_response(text: str) -> dict[str, Any]:
    """A whole response of /v1/responses, of which the package must know every field."""
    ApiResponse.model_validate_json(text)
    answer = json.loads(text)
    check_known(Response, answer)
    return answer


def check_response_events(text: str) -> list[dict[str, Any]]:
    """All events of a stream of /v1/responses: numbered, each named by its type."""
    *events, end = text.split("\n\n")
    assert end == ""
    found = []
    for event in events:
        head, data = event.split("\n")
        _adapter(EVENT).validate_json(data.removeprefix("data: "))
        found.append(json.loads(data.removeprefix("data: ")))
        assert head == f"event: {found[-1]['type']}"
        check_known(ResponseStreamEvent, found[-1])
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


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
    _adapter(kind).validate_json(json.dumps(answer), strict=True)


def check_known(kind: Any, answer: Any) -> None:
    """Valid, and without a field that the package does not know, at any depth."""
    unknown = _unknown(_adapter(kind).validate_json(json.dumps(answer), strict=True), "")
    assert not unknown, unknown


def _unknown(value: Any, path: str) -> list[str]:
    if isinstance(value, list):
        return [found for i, each in enumerate(value) for found in _unknown(each, f"{path}[{i}]")]
    if not isinstance(value, BaseModel):
        return []
    own = [f"{path}.{name}" for name in value.model_extra or ()]
    return own + [found for name, each in value for found in _unknown(each, f"{path}.{name}")]


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
