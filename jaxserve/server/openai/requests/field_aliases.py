"""Host: `without_aliases`: other servers' names of fields, replaced by the names here."""

from collections.abc import Collection, Mapping
from typing import Any, cast

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
# Fields whose value must be converted: `cache_prompt` is the opposite, `enable_thinking` a variable of the template.
CACHE_PROMPT, SKIP_CACHE = "cache_prompt", "skip_reading_prefix_cache"
ENABLE_THINKING, VARIABLES = "enable_thinking", "chat_template_kwargs"


def without_aliases(body: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The body with the names here, of the fields in `known`; a null alias is dropped.

    Raises `ApiError` for a field that is sent under two names with different values.
    """
    fields = dict(body)
    for alias, name in ALIASES.items():
        if alias in fields and name in known:
            _set(fields, name, fields.pop(alias), alias)
    if CACHE_PROMPT in fields and SKIP_CACHE in known:
        value = _flag(CACHE_PROMPT, fields.pop(CACHE_PROMPT))
        _set(fields, SKIP_CACHE, None if value is None else not value, CACHE_PROMPT)
    if ENABLE_THINKING in fields and VARIABLES in known:
        value, variables = _flag(ENABLE_THINKING, fields.pop(ENABLE_THINKING)), fields.get(VARIABLES)
        if value is not None and isinstance(variables, dict | None):
            fields[VARIABLES] = own = dict(cast(dict[str, Any], variables or {}))
            _set(own, ENABLE_THINKING, value, ENABLE_THINKING)
    return fields


def _set(fields: dict[str, Any], name: str, value: Any, alias: str) -> None:
    if value is None:
        return
    if fields.get(name) not in (None, value):
        where = name if name != alias else f"{VARIABLES}.{name}"
        raise ApiError(400, f"{alias} and {where} differ: send one", param=alias)
    fields[name] = value


def _flag(name: str, value: Any) -> bool | None:
    if not isinstance(value, bool | None):
        raise ApiError(400, f"{name} must be true or false", param=name)
    return value
