"""Host: `Body`: the base of request bodies: strict validation, errors that name the field, OpenAPI descriptions."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.field_policy import effective_fields

MAX_ERRORS = 10
INT64 = 1 << 63
Item = TypeVar("Item")
# Validation stops at a list's first bad item: errors for a million items take seconds, during which nothing else runs.
Items = Annotated[list[Item], Field(fail_fast=True)]


class Body(BaseModel):
    """A JSON object of known fields; null counts as absent, and numbers in strings are refused.

    prompt_field: the field that holds the prompts.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    prompt_field: ClassVar[str] = "prompt"

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
            return cls.model_validate(effective_fields(body, cls.model_fields))
        except ValidationError as error:
            raise _as_api_error(error) from None


def _as_api_error(error: ValidationError) -> ApiError:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{_path(each['loc'])}: {each['msg']}" for each in details[:MAX_ERRORS]]
    return ApiError(400, "; ".join(lines), param=_path(details[0]["loc"]))


def _path(loc: tuple[int | str, ...]) -> str:
    """The field as `stop` or `stop[3]`, without pydantic's names for the members of a union."""
    path = str(loc[0]) if loc else "body"
    return path + "".join(f"[{part}]" for part in loc[1:] if isinstance(part, int))


def fields_set(body: BaseModel, names: Iterable[str]) -> dict[str, Any]:
    """The fields among `names` that the client set, with their values."""
    return {name: getattr(body, name) for name in names if name in body.model_fields_set}
