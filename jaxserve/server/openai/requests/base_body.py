"""Host: `Body`, what all request bodies have in common: read strictly, refused with the name of the field at fault."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.field_policy import wanted

MAX_ERRORS = 10
INT64 = 1 << 63
Item = TypeVar("Item")
# Of a list's bad items only the first is told: to make errors of a million takes seconds, in which nothing else runs.
Items = Annotated[list[Item], Field(fail_fast=True)]


class Body(BaseModel):
    """A JSON object of known fields; a field that is null counts as left out. Numbers are numbers, not text.

    prompt_field: the one in which prompts come.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    prompt_field: ClassVar[str] = "prompt"

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: Any) -> Any:
        """Of a body within a body, too; a field that is not known stays, to be refused."""
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None or name not in cls.model_fields}

    @classmethod
    def read(cls, body: Any) -> Self:
        """Raises `ApiError` of status 400 for what cannot be honoured."""
        try:
            return cls.model_validate(wanted(body, cls.model_fields))
        except ValidationError as error:
            raise _as_api_error(error) from None


def _as_api_error(error: ValidationError) -> ApiError:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{_path(each['loc'])}: {each['msg']}" for each in found[:MAX_ERRORS]]
    return ApiError(400, "; ".join(lines), param=_path(found[0]["loc"]))


def _path(loc: tuple[int | str, ...]) -> str:
    """The field as `stop`, `stop[3]`; pydantic's names for the members of a union are left out."""
    path = str(loc[0]) if loc else "body"
    return path + "".join(f"[{part}]" for part in loc[1:] if isinstance(part, int))


def given(body: BaseModel, names: Iterable[str]) -> dict[str, Any]:
    """Values of those fields that the client set."""
    return {name: getattr(body, name) for name in names if name in body.model_fields_set}
