"""Host: the lines of a batch file, each parsed and validated on its own: an invalid line does not affect others."""

import hashlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.base_body import Body
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.openai.responses_api.responses_body import ResponsesBody

URLS: dict[str, type[Body]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/embeddings": EmbeddingBody,
    "/v1/responses": ResponsesBody,
}
MAX_LINE_BYTES = 16 << 20
MAX_ID_CHARS = 512
DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One request of the file. number: of its line, from 1. body: validated, or the line's error."""

    number: int
    digest: str
    custom_id: str | None
    body: Body | ApiError


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line that is not blank; a longer line is cut after `MAX_LINE_BYTES` + 1 bytes."""
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            rest = raw
            if number == 1:  # some editors begin a file with a byte order mark
                raw = raw.removeprefix(BOM_UTF8)
            while not rest.endswith(b"\n") and (rest := file.readline(MAX_LINE_BYTES)):
                pass
            if raw.strip():
                yield number, raw


def digest(raw: bytes) -> str:
    """Identifies an input line by its content."""
    return hashlib.sha256(raw.strip()).hexdigest()[:DIGEST_CHARS]


def parse_line(number: int, raw: bytes) -> BatchLine:
    """Parse `{"custom_id", "method": "POST", "url", "body"}`, the format of OpenAI's batch files."""
    custom_id = None
    try:
        if len(raw) > MAX_LINE_BYTES:
            raise ApiError(413, f"the line is longer than {MAX_LINE_BYTES} bytes")
        request = _parse_object(raw)
        custom_id = request.get("custom_id")
        if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_ID_CHARS:
            custom_id = None
            raise ApiError(400, f"custom_id must be text of 1 to {MAX_ID_CHARS} characters", param="custom_id")
        return BatchLine(number, digest(raw), custom_id, _parse_body(request))
    except ApiError as error:
        return BatchLine(number, digest(raw), custom_id, error)


def _parse_object(raw: bytes) -> dict[str, Any]:
    try:
        parsed: Any = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the line is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ApiError(400, "the line must be a JSON object")
    return cast(dict[str, Any], parsed)


def _parse_body(request: dict[str, Any]) -> Body:
    if unknown := sorted(set(request) - {"custom_id", "method", "url", "body"}):
        raise ApiError(400, f"unknown field {unknown[0]!r}", param=unknown[0])
    if request.get("method") != "POST":
        raise ApiError(400, 'method must be "POST"', param="method")
    url = request.get("url")
    if not isinstance(url, str) or url not in URLS:
        raise ApiError(400, f"url must be one of {', '.join(URLS)}", param="url")
    body = URLS[url].read(request.get("body"))
    if getattr(body, "stream", False):
        raise ApiError(400, "batch files do not support streaming: leave stream out", param="stream")
    return body
