"""Host: fields of OpenAI's responses that are not built, what to use instead, and their values that ask for nothing."""

from collections.abc import Mapping
from typing import Any

INSTEAD: Mapping[str, str] = {
    "background": "responses are sent to the client that asked; use stream",
    "background_options": "responses are sent to the client that asked",
    "conversation": "send the items as input, or previous_response_id",
    "prompt": "templates of prompts are not stored here: send instructions and input",
    "context_management": "send fewer items as input",
    "max_tool_calls": "it limits tools that run on OpenAI's servers",
    "moderation": "outputs are not moderated",
    "access_programs": "leave it out",
    "image": "input is text",
    "prompt_cache_options": "use cache_salt and skip_reading_prefix_cache",
    "messages": "send them as input, or to /v1/chat/completions",
    "max_tokens": "use max_output_tokens",
    "max_completion_tokens": "use max_output_tokens",
    "n": "a request has one response",
    "logprobs": 'use include=["message.output_text.logprobs"] and top_logprobs',
    "response_format": "use text.format",
    "verbosity": "describe it in the instructions",
}
_OFF: Mapping[str, tuple[Any, ...]] = {
    "background": (False,),
    "context_management": ([],),
    "n": (1,),
    "verbosity": ("medium",),
}
NEUTRAL = {name: (None, *_OFF.get(name, ())) for name in INSTEAD}
