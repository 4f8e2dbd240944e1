"""Laws of a server's responses to any body: a refusal by name or the requested result, never a failure."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.serving.body_fuzz import Case
from tests.support.serving.response_schemas import check_response, check_response_events

RESPONSES = "/v1/responses"
REFUSALS = (400, 404, 413)
BUSY = {"queue_full": 429, "timeout": 503}  # by code: refusals that clients may retry
REASONS = ("stop", "length")
PRIVATE = ("Traceback", "site-packages", ".py", " at 0x")


def faults(case: Case, status: int, headers: Mapping[str, str], text: str) -> list[str]:
    """Violations of the laws by a response, in words; empty for a valid one."""
    try:
        _check(case, status, headers, text)
    except (AssertionError, ValueError, KeyError, TypeError, IndexError) as error:
        return [f"case {case.number} {case.path}: {type(error).__name__} {error}; {status} {text[:300]}"]
    return []


def _check(case: Case, status: int, headers: Mapping[str, str], text: str) -> None:
    kind = headers["content-type"].partition(";")[0]
    if status != 200:
        assert kind == "application/json"
        error = _error(_read(text))
        assert status in REFUSALS or BUSY.get(error["code"]) == status, "failed"
        if error["code"] == "timeout":  # computed again, it would be late again
            assert headers["x-should-retry"] == "false"
        else:
            assert status in REFUSALS or int(headers["retry-after"]) >= 1
    elif kind == "text/event-stream":
        assert case.body["stream"] is True
        if case.path == RESPONSES:
            _check_response(check_response_events(text)[-1]["response"])
        else:
            _check_events(case.body, text)
    else:
        assert kind == "application/json"
        assert isinstance(case.body, dict), "accepted"
        assert not case.body.get("stream")
        answer = _read(text)
        if case.path == RESPONSES:
            _check_response(check_response(text))
        elif "choices" in answer:
            _check_whole(case.body, answer)


def _check_response(answer: dict[str, Any]) -> None:
    """Ended as a whole, or by an error that clients may retry."""
    if answer["status"] == "failed":
        assert answer["error"]["message"]
        return
    assert answer["status"] in ("completed", "incomplete")
    assert answer["output"]
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def _error(answer: Any) -> dict[str, Any]:
    error = answer["error"]
    assert set(answer) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert 0 < len(error["message"]) <= 1000
    assert not [word for word in PRIVATE if word in error["message"]]
    return error


def _check_whole(body: Mapping[str, Any], answer: dict[str, Any]) -> None:
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == list(range(_num_choices(body)))
    for choice in choices:
        assert choice["finish_reason"] in REASONS
        assert isinstance(choice["text"] if "text" in choice else choice["message"]["content"], str)
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def _check_events(body: Mapping[str, Any], text: str) -> None:
    """Every choice ends once and sends nothing afterwards; an error is the last event."""
    *events, done, end = text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    ended: set[int] = set()
    for i, line in enumerate(event for event in events if not event.startswith(":")):
        assert line.startswith("data: ")
        chunk = _read(line.removeprefix("data: "))
        if "error" in chunk:
            assert _error(chunk)["code"] in (*BUSY, "grammar_failed")
            assert i == len(events) - 1
            return
        for choice in chunk["choices"]:
            assert choice["index"] not in ended
            assert isinstance(choice["text"] if "text" in choice else choice["delta"]["content"], str)
            if choice["finish_reason"] is not None:
                assert choice["finish_reason"] in REASONS
                ended.add(choice["index"])
    assert ended == set(range(_num_choices(body)))


def _num_choices(body: Mapping[str, Any]) -> int:
    prompt = body.get("prompt", "")
    is_one = isinstance(prompt, str) or isinstance(prompt[0], int)
    return (body.get("n") or 1) * (1 if is_one else len(prompt))


def _read(text: str) -> Any:
    """Strict JSON, without Python's extensions."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)
