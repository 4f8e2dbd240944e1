"""Host: `without_aliases`: other servers' names of fields, replaced by the names here."""

from collections.abc import Collection, Mapping
from typing import Any, cast

from jaxserve.core.options.structured_outputs import PARAM
from jaxserve.server.http.error_responses import ApiError

# llama.cpp's, SGLang's and transformers' names of fields that mean the same.
ALIASES: Mapping[str, str] = {
    "repeat_penalty": "repetition_penalty",
    "n_predict": "max_tokens",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "sampling_seed": "seed",
    "no_stop_trim": "include_stop_str_in_output",
    "rid": "request_id",
}
# Fields that are parts of others here: (the other, its part). `enable_thinking` is a variable of the template; earlier
# vLLMs, SGLang and llama.cpp have a field for each form of the output.
PARTS: Mapping[str, tuple[str, str]] = {
    "enable_thinking": ("chat_template_kwargs", "enable_thinking"),
    "guided_json": (PARAM, "json"),
    "guided_regex": (PARAM, "regex"),
    "guided_choice": (PARAM, "choice"),
    "guided_grammar": (PARAM, "grammar"),
    "guided_whitespace_pattern": (PARAM, "whitespace_pattern"),
    "json_schema": (PARAM, "json"),
    "regex": (PARAM, "regex"),
    "ebnf": (PARAM, "grammar"),
    "grammar": (PARAM, "grammar"),
}
FLAGS = ("enable_thinking",)
EMPTY = {"grammar": ""}  # llama.cpp's clients send it for no grammar
# The value must be converted: it is the opposite.
CACHE_PROMPT, SKIP_CACHE = "cache_prompt", "skip_reading_prefix_cache"


def without_aliases(body: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The body with the names here, of the fields in `known`; a null alias is dropped.

    Raises `ApiError` for a field that is sent under two names with different values.
    """
    fields = dict(body)
    for alias, name in ALIASES.items():
        if alias in fields and name in known:
            _set(fields, name, fields.pop(alias), alias)
    for alias, (name, part) in PARTS.items():
        if alias in fields and name in known:
            _set_part(fields, name, part, fields.pop(alias), alias)
    if CACHE_PROMPT in fields and SKIP_CACHE in known:
        value = _flag(CACHE_PROMPT, fields.pop(CACHE_PROMPT))
        _set(fields, SKIP_CACHE, None if value is None else not value, CACHE_PROMPT)
    return fields


def _set(fields: dict[str, Any], name: str, value: Any, alias: str, within: str = "") -> None:
    """within: the path of the object that `fields` are, as in `a.`."""
    if value is None:
        return
    if fields.get(name) not in (None, value):
        raise ApiError(400, f"{alias} and {within}{name} differ: send one", param=alias)
    fields[name] = value


def _set_part(fields: dict[str, Any], name: str, part: str, value: Any, alias: str) -> None:
    """Set a part of the object `name`; a value of another type stays there, to be refused."""
    if alias in FLAGS:
        value = _flag(alias, value)
    whole = fields.get(name)
    if value not in (None, EMPTY.get(alias)) and isinstance(whole, dict | None):
        fields[name] = own = dict(cast(dict[str, Any], whole or {}))
        _set(own, part, value, alias, f"{name}.")


def _flag(name: str, value: Any) -> bool | None:
    if not isinstance(value, bool | None):
        raise ApiError(400, f"{name} must be true or false", param=name)
    return value
