"""Host: fields that clients send and jaxserve has no use for: without effect, or not built yet."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from jaxserve.server.http.error_responses import ApiError

MAX_NAME_CHARS = 100  # of a name that nobody knows; to compare millions with the known ones takes a second

# Accepted and left out: they tell OpenAI's own service about accounts and billing, and change no answer.
INERT = frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention session_id "
    "parallel_tool_calls include_reasoning verbosity".split()
)

# Known and not built; with one of these values they ask for nothing, as with null.
UNBUILT: Mapping[str, tuple[Any, ...]] = {
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


def wanted(body: Any, known: Collection[str]) -> dict[str, Any]:
    """What of a body asks for something: nothing inert. Raises `ApiError` naming what cannot be honoured.

    known: the fields that the surface honours, some of which others do not.
    """
    if not isinstance(body, Mapping):
        raise ApiError(400, "the body must be a JSON object")
    fields = {}
    for name, value in body.items():
        if name in known:
            fields[name] = value
        elif name in UNBUILT:
            _check_neutral(name, value)
        elif name not in INERT:
            told = name[:MAX_NAME_CHARS]
            close = difflib.get_close_matches(told, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ApiError(400, f"unknown field {told!r}{hint}", param=told, code="unknown_field")
    return fields


def _check_neutral(name: str, value: Any) -> None:
    if value is None or any(value == neutral and type(value) is type(neutral) for neutral in UNBUILT[name]):
        return
    raise ApiError(400, f"{name} is not supported: leave it out", param=name, code="unsupported_field")
