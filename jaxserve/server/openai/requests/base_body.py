"""Host: `Body`: the base of request bodies: strict validation, errors that name the field, OpenAPI descriptions."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.field_policy import effective_fields, unknown_field

MAX_ERRORS = 10
Item = TypeVar("Item")
# Validation stops at a list's first bad item: errors for a million items take seconds, during which nothing else runs.
Items = Annotated[list[Item], Field(fail_fast=True)]


class Body(BaseModel):
    """A JSON object of known fields; null counts as absent, and numbers in strings are refused.

    prompt_field: the field that holds the prompts. misplaced: fields of other endpoints that clients send to this one,
    with what to do instead. neutral: values of those that ask for nothing, and are accepted.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    prompt_field: ClassVar[str] = "prompt"
    misplaced: ClassVar[Mapping[str, str]] = {}
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: Any) -> Any:
        """Applies to nested bodies too. An unknown field stays, so that it is refused even when it is null."""
        if not isinstance(fields, dict):
            return fields
        sent = cast(dict[Any, Any], fields)
        return {name: value for name, value in sent.items() if value is not None or name not in cls.model_fields}

    @classmethod
    def read(cls, body: Any) -> Self:
        """The validated body. Raises `ApiError` with status 400 for an invalid or unsupported field."""
        try:
            return cls.model_validate(effective_fields(body, cls.model_fields, cls.misplaced, cls.neutral))
        except ValidationError as error:
            raise _as_api_error(error, cls) from None


def _as_api_error(error: ValidationError, body_type: type[Body]) -> ApiError:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    first = details[0]
    if first["type"] == "extra_forbidden":  # within a nested body: `effective_fields` has checked the others
        within, nested = _path(first["loc"][:-1], body_type), _nested_in(body_type, first["loc"][0])
        return unknown_field(str(first["loc"][-1]), nested.model_fields if nested else (), f"{within}.")
    lines = [f"{_path(each['loc'], body_type)}: {each['msg']}" for each in details[:MAX_ERRORS]]
    return ApiError(400, "; ".join(lines), param=_path(first["loc"], body_type))


def _path(loc: tuple[int | str, ...], body_type: type[Body]) -> str:
    """The field as `stop`, `stop[3]` or `stream_options.include_usage`, without pydantic's names for the members of a
    union."""
    path, nested = (str(loc[0]), _nested_in(body_type, loc[0])) if loc else ("body", None)
    for part in loc[1:]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if nested and part in nested.model_fields else ""
    return path


def _nested_in(body_type: type[Body], name: int | str) -> type[Body] | None:
    """The body that a field holds, or the items of a list."""
    return _body_in(body_type.model_fields[str(name)].annotation)


def _body_in(annotation: Any) -> type[Body] | None:
    """The first type of bodies among the parts of an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Body):
        return annotation
    return next((found for part in get_args(annotation) if (found := _body_in(part)) is not None), None)


def fields_set(body: BaseModel, names: Iterable[str]) -> dict[str, Any]:
    """The fields among `names` that the client set, with their values."""
    return {name: getattr(body, name) for name in names if name in body.model_fields_set}
