"""Host: `LoraModule`: an adapter of the option `lora_modules`, which a server has from the start."""

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.core.utf8_texts import is_utf8

OPTION = "lora_modules"
KEYS = ("name", "path", "base_model_name")
# Of every adapter that is served: metrics list names in one label, between commas.
NAME_PATTERN = r"^[^,\x00-\x1f\x7f]*$"


@dataclass(frozen=True, slots=True)
class LoraModule:
    """base_model_name: the name of the model that it belongs to; None: the first."""

    request: LoRARequest
    base_model_name: str | None = None

    @classmethod
    def read(cls, text: str) -> "LoraModule":
        """From `name=path`, or a JSON object with `name`, `path` and maybe `base_model_name`, as vLLM takes them.

        Raises `ConfigError`.
        """
        if text.lstrip().startswith("{"):
            return cls._from_json(text)
        name, sign, path = text.partition("=")
        if not sign:
            raise ConfigError(f"{OPTION}={text!r} must be name=path, or a JSON object with name and path", OPTION)
        return cls(_request(name.strip(), path.strip()))

    @classmethod
    def _from_json(cls, text: str) -> "LoraModule":
        try:
            parsed: Any = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{OPTION}={text!r} is not JSON: {error}", OPTION) from None
        fields = cast(dict[str, Any], parsed)
        if unknown := [key for key in fields if key not in KEYS]:
            raise ConfigError(f"{OPTION} has {unknown[0]!r}, which is unknown; known: {', '.join(KEYS)}", OPTION)
        base = fields.get("base_model_name")
        if not isinstance(base, str | None):
            raise ConfigError(f"{OPTION}: base_model_name must be text", OPTION)
        return cls(_request(fields.get("name"), fields.get("path")), base)


def _request(name: Any, path: Any) -> LoRARequest:
    for key, value in (("name", name), ("path", path)):
        if isinstance(value, str) and not is_utf8(value):
            raise ConfigError(f"{OPTION}: {key}={value!r} is not UTF-8 text", OPTION)
    if isinstance(name, str) and re.fullmatch(NAME_PATTERN, name) is None:
        raise ConfigError(f"{OPTION}: name={name!r} must have no comma and no control characters", OPTION)
    try:
        return LoRARequest(name, path)
    except RequestError as error:
        raise ConfigError(f"{OPTION}: {error}", OPTION) from None
