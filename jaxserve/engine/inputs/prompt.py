"""Host: the forms in which users give prompts, brought to one."""

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxserve.core.errors import RequestError
from jaxserve.text.tokenizer import Tokenizer

PROMPT_KEYS = ("prompt", "prompt_token_ids", "cache_salt")
MAX_SALT_CHARS = 128
_INTEGERS = (int, np.integer)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text, or token ids, or both when the user knows both.

    cache_salt: only prompts with an equal one share cached prefixes.
    """

    text: str | None
    token_ids: Sequence[int] | None
    cache_salt: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The form in which users give text and token ids."""
        return {"prompt": self.text, "prompt_token_ids": self.token_ids}


def read_prompts(prompts: Any) -> list[Prompt]:
    """One prompt or a list of them: text, a list of token ids, or a dict with `prompt` or `prompt_token_ids`, and maybe
    `cache_salt`."""
    if isinstance(prompts, str | Mapping) or _is_ids(prompts):
        return [read_prompt(prompts, "the prompt")]
    if not isinstance(prompts, list | tuple):
        raise RequestError(f"prompts must be text, token ids, a dict, or a list of those, not {type(prompts).__name__}")
    return [read_prompt(prompt, f"prompt {i}") for i, prompt in enumerate(prompts)]


def prompt_size(prompt: Any) -> int:
    """How much there is to read: characters or tokens of a prompt that nobody has looked at yet."""
    parts = list(prompt.values()) if isinstance(prompt, Mapping) else [prompt]
    return sum(len(part) for part in parts if isinstance(part, Sized))


def read_only_prompt(prompt: Any) -> Prompt:
    """One prompt where a list of them is not served."""
    is_list = isinstance(prompt, list | tuple) and not _is_ids(prompt)
    if is_list and any(isinstance(item, str | list | tuple | Mapping) for item in prompt):
        raise RequestError("one prompt at a time, not a list: call once for each, or use LLM.generate", "prompt")
    return read_prompt(prompt, "the prompt")


def read_prompt(prompt: Any, name: str) -> Prompt:
    if isinstance(prompt, str):
        return Prompt(prompt, None)
    if _is_ids(prompt):
        return Prompt(None, _ids(prompt, name))
    if isinstance(prompt, list | tuple) and not prompt:
        raise RequestError(f"{name} is empty: give at least one token", "prompt")
    if not isinstance(prompt, Mapping):
        raise RequestError(f"{name} must be text, a list of token ids or a dict, not {type(prompt).__name__}", "prompt")
    if unknown := sorted(str(key) for key in prompt if key not in PROMPT_KEYS):
        raise RequestError(f"{name} has {', '.join(unknown)}, which is not supported; known: {PROMPT_KEYS}", unknown[0])
    text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if text is None and ids is None:
        raise RequestError(f"{name} has neither 'prompt' nor 'prompt_token_ids'", "prompt")
    if text is not None and not isinstance(text, str):
        raise RequestError(f"{name}: 'prompt' must be text, not {type(text).__name__}", "prompt")
    return Prompt(text, None if ids is None else _ids(ids, name), _salt(prompt.get("cache_salt"), name))


def token_ids(prompts: Sequence[Prompt], tokenizer: Tokenizer | None) -> list[list[int]]:
    """Token ids of each prompt; all texts are encoded in one call."""
    texts = [p.text for p in prompts if p.token_ids is None and p.text is not None]
    if texts and tokenizer is None:
        raise RequestError(
            "this model has no tokenizer: give prompts as token ids, or name one (tokenizer=…)", "prompt"
        )
    encoded = iter(tokenizer.encode_batch(texts) if tokenizer is not None and texts else [])
    return [list(p.token_ids) if p.token_ids is not None else next(encoded) for p in prompts]


def check_chars(text: str, tokenizer: Tokenizer, max_model_len: int, param: str) -> None:
    """Refuse, before it is encoded, a text that cannot fit the context however few tokens it takes."""
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
        return value.ndim == 1 and np.issubdtype(value.dtype, np.integer)
    return isinstance(value, list | tuple) and bool(value) and all(issubclass(t, _INTEGERS) for t in _types(value))


def _ids(value: Any, name: str) -> list[int]:
    if not isinstance(value, list | tuple | np.ndarray):
        raise RequestError(f"{name}: 'prompt_token_ids' must be a list of integers", "prompt_token_ids")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    types = _types(value)
    if any(issubclass(t, bool) or not issubclass(t, _INTEGERS) for t in types):
        raise RequestError(f"{name}: 'prompt_token_ids' must hold integers only", "prompt_token_ids")
    return list(value) if types == {int} else list(map(int, value))


def _types(values: Iterable[Any]) -> set[type]:
    """A long prompt has few of them: one look at each token is what it costs."""
    return set(map(type, values))
