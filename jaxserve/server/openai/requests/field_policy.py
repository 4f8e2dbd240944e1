"""Host: known fields that jaxserve ignores or does not support, and the check of a body's field names."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any, cast

from jaxserve.server.http.error_responses import ApiError

MAX_NAME_CHARS = 100  # of an unknown name: comparing millions of characters with the known names takes a second

# Accepted and ignored: they concern accounts and billing of OpenAI's own service and do not affect the response.
IGNORED = frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention session_id "
    "parallel_tool_calls include_reasoning verbosity".split()
)

# Known but not supported. Null and the values listed here request nothing and are accepted.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "tools": (),
    "tool_choice": ("none", "auto"),
    "functions": (),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "best_of": (1,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "logprob_token_ids": ([],),
    "thinking_token_budget": (-1,),
    "reasoning_effort": (),
    "repetition_detection": (),
    "watermarking": (False,),
    "stream_interval": (1,),
    "vllm_xargs": ({},),
    "kv_transfer_params": (),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "documents": ([],),
    "lora_request": (),
    "prompt_embeds": (),
    "return_prompt_text": (False,),
    "chat_template_content_format": ("auto",),
}


def effective_fields(body: Any, known: Collection[str]) -> dict[str, Any]:
    """The fields of a body that have an effect. Raises `ApiError` naming an unknown or unsupported field.

    known: the fields that the endpoint supports.
    """
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object")
    fields: dict[str, Any] = {}
    for name, value in cast(dict[str, Any], body).items():
        if name in known:
            fields[name] = value
        elif name in UNSUPPORTED:
            _check_neutral(name, value)
        elif name not in IGNORED:
            shown = name[:MAX_NAME_CHARS]
            close = difflib.get_close_matches(shown, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ApiError(400, f"unknown field {shown!r}{hint}", param=shown, code="unknown_field")
    return fields


def _check_neutral(name: str, value: Any) -> None:
    if value is None or any(value == neutral and type(value) is type(neutral) for neutral in UNSUPPORTED[name]):
        return
    raise ApiError(400, f"{name} is not supported: leave it out", param=name, code="unsupported_field")
