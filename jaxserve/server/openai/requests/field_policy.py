"""Host: `effective_fields`: the check of a body's field names."""

from collections.abc import Collection, Mapping
from typing import Any, cast

from jaxserve.core.did_you_mean import MAX_NAME_CHARS, did_you_mean
from jaxserve.core.options.sampling_params import OTHER_NAMES
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.field_aliases import without_aliases
from jaxserve.server.openai.requests.unsupported_fields import IGNORED, INSTEAD, UNSUPPORTED


def effective_fields(
    body: Any, known: Collection[str], misplaced: Mapping[str, str], neutral: Mapping[str, tuple[Any, ...]]
) -> dict[str, Any]:
    """The fields of a body that have an effect, under the names here. Raises `ApiError` naming an unknown or
    unsupported field.

    known: the fields that the endpoint supports. misplaced: fields of other endpoints, with what to do instead.
    neutral: values of those that ask for nothing.
    """
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object")
    fields: dict[str, Any] = {}
    for name, value in without_aliases(cast(dict[str, Any], body), known).items():
        if name in known:
            fields[name] = value
        elif name in misplaced:
            if not _is_one_of(value, neutral.get(name, ())):
                _refuse(name, misplaced[name])
        elif name in UNSUPPORTED:
            if value is not None and not _is_one_of(value, UNSUPPORTED[name]):
                _refuse(name, INSTEAD.get(name, "leave it out"))
        elif name not in IGNORED:
            raise unknown_field(name, known)
    return fields


def unknown_field(name: str, known: Collection[str], within: str = "") -> ApiError:
    """The refusal of a field, with the known one that it resembles. within: the path of its object, as in `a.`."""
    shown = name[:MAX_NAME_CHARS]
    meant = OTHER_NAMES.get(shown)
    hint = f"; did you mean {meant!r}?" if meant in known else did_you_mean(shown, known)
    path = within + shown
    return ApiError(400, f"unknown field {path!r}{hint}", param=path, code="unknown_field")


def _is_one_of(value: Any, neutral: tuple[Any, ...]) -> bool:
    return any(value == each and type(value) is type(each) for each in neutral)


def _refuse(name: str, instead: str) -> None:
    raise ApiError(400, f"{name} is not supported: {instead}", param=name, code="unsupported_field")
