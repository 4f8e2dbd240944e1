"""Host: `Prompt`: every form in which a caller gives a prompt, read into one record."""

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from jaxserve.core.errors import RequestError
from jaxserve.text.tokenizer import Tokenizer

PROMPT_KEYS = ("prompt", "prompt_token_ids", "cache_salt")
MAX_SALT_CHARS = 128
_INTEGERS = (int, np.integer)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text, or token ids, or both where both are known; the ids then win.

    token_ids: integers, the caller's own list, not copied. cache_salt: only prompts with an equal one share cached
    prefixes. `read_prompt` and the server make prompts of untrusted values; a `Prompt` itself is not checked again.
    """

    text: str | None
    token_ids: Sequence[int] | None
    cache_salt: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Text and token ids, as `LLM.render_chat` returns them and `LLM.generate` takes them."""
        return {"prompt": self.text, "prompt_token_ids": self.token_ids}


def read_prompts(prompts: Any) -> list[Prompt]:
    """One prompt, or a list of prompts, each in a form that `read_prompt` takes."""
    if isinstance(prompts, str | Mapping | Prompt) or _is_ids(prompts):
        return [read_prompt(prompts, "the prompt")]
    if not isinstance(prompts, list | tuple):
        raise RequestError(f"prompts must be text, token ids, a dict, or a list of those, not {type(prompts).__name__}")
    return [read_prompt(prompt, f"prompt {i}") for i, prompt in enumerate(cast(Sequence[Any], prompts))]


def read_only_prompt(prompt: Any) -> Prompt:
    """The prompt of a call that takes one; raises `RequestError` for a list of prompts."""
    if isinstance(prompt, list | tuple) and not _is_ids(prompt):
        items = cast(Sequence[Any], prompt)
        if any(isinstance(item, str | list | tuple | Mapping | Prompt) for item in items):
            raise RequestError("one prompt at a time, not a list: call once for each, or use LLM.generate", "prompt")
    return read_prompt(prompt, "the prompt")


def read_prompt(prompt: Any, name: str) -> Prompt:
    """A prompt from text, a list of token ids, a dict with `prompt` or `prompt_token_ids` and maybe `cache_salt`.

    A `Prompt` is returned as it is. Raises `RequestError`, which calls the prompt `name`.
    """
    if isinstance(prompt, Prompt):
        return prompt
    if isinstance(prompt, str):
        return Prompt(prompt, None)
    if _is_ids(prompt):
        return Prompt(None, _ids(prompt, name))
    if isinstance(prompt, list | tuple) and len(cast(Sequence[Any], prompt)) == 0:
        raise RequestError(f"{name} is empty: give at least one token", "prompt")
    if isinstance(prompt, Mapping):
        return _from_mapping(cast(Mapping[Any, Any], prompt), name)
    kind = type(cast(object, prompt)).__name__
    raise RequestError(f"{name} must be text, a list of token ids or a dict, not {kind}", "prompt")


def _from_mapping(prompt: Mapping[Any, Any], name: str) -> Prompt:
    if unknown := sorted(str(key) for key in prompt if key not in PROMPT_KEYS):
        raise RequestError(f"{name} has {', '.join(unknown)}, which is not supported; known: {PROMPT_KEYS}", unknown[0])
    text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if text is None and ids is None:
        raise RequestError(f"{name} has neither 'prompt' nor 'prompt_token_ids'", "prompt")
    if text is not None and not isinstance(text, str):
        raise RequestError(f"{name}: 'prompt' must be text, not {type(text).__name__}", "prompt")
    return Prompt(text, None if ids is None else _ids(ids, name), _salt(prompt.get("cache_salt"), name))


def prompt_size(prompt: Any) -> int:
    """Characters or tokens of a prompt that was not read yet: a measure of the work that reading it takes."""
    if isinstance(prompt, Prompt):
        parts = [prompt.text, prompt.token_ids]
    else:
        parts = list(cast(Mapping[Any, Any], prompt).values()) if isinstance(prompt, Mapping) else [prompt]
    return sum(len(part) for part in parts if isinstance(part, Sized))


def token_ids(prompts: Sequence[Prompt], tokenizer: Tokenizer | None) -> list[Sequence[int]]:
    """Token ids of each prompt, not copied where they are given; all texts are encoded in one call."""
    texts = [p.text for p in prompts if p.token_ids is None and p.text is not None]
    if texts and tokenizer is None:
        raise RequestError(
            "this model has no tokenizer: give prompts as token ids, or name one (tokenizer=…)", "prompt"
        )
    encoded = iter(tokenizer.encode_batch(texts) if tokenizer is not None and texts else [])
    return [p.token_ids if p.token_ids is not None else next(encoded) for p in prompts]


def check_chars(text: str, tokenizer: Tokenizer, max_model_len: int, param: str) -> None:
    """Raise `RequestError` for a text that cannot fit the context however few tokens it takes; encodes nothing."""
    if len(text) > max_model_len * tokenizer.max_token_bytes:
        raise RequestError(
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains "
            f"{len(text)} characters, which are more input tokens than that. Shorten the prompt.",
            param,
        )


def _salt(salt: Any, name: str) -> str | None:
    if salt is not None and (not isinstance(salt, str) or not 0 < len(salt) <= MAX_SALT_CHARS):
        raise RequestError(f"{name}: 'cache_salt' must be text of 1 to {MAX_SALT_CHARS} characters", "cache_salt")
    return salt


def _is_ids(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        array = cast(np.ndarray, value)
        return array.ndim == 1 and np.issubdtype(array.dtype, np.integer)
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(issubclass(t, _INTEGERS) for t in _types(cast(Sequence[Any], value)))


def _ids(value: Any, name: str) -> Sequence[int]:
    """The ids themselves where they are integers of Python, a list of such otherwise."""
    if isinstance(value, np.ndarray):
        value = cast(np.ndarray, value).tolist()
    if not isinstance(value, list | tuple):
        raise RequestError(f"{name}: 'prompt_token_ids' must be a list of integers", "prompt_token_ids")
    ids = cast(Sequence[Any], value)
    types = _types(ids)
    if any(issubclass(t, bool) or not issubclass(t, _INTEGERS) for t in types):
        raise RequestError(f"{name}: 'prompt_token_ids' must hold integers only", "prompt_token_ids")
    return ids if types == {int} else list(map(int, ids))


def _types(values: Iterable[Any]) -> set[type]:
    """The few types of many values: one look at each value is all that a long prompt costs."""
    return set(map(type, values))
