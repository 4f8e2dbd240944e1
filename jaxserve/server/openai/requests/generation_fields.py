"""Host: `GenerationFields`, shared by all bodies that generate text; `SamplingFields`, by completions and chats."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_checks import INT64, MAX_LOGIT_BIAS
from jaxserve.core.options.sampling_params import MAX_BAD_WORDS, MAX_N, MAX_TEMPERATURE, SamplingParams
from jaxserve.core.options.scheduling_options import MAX_TENANT_CHARS, SchedulingKwargs
from jaxserve.core.options.structured_outputs import PARAM, StructuredOutputsParams
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.base_body import Body, Items, fields_set
from jaxserve.server.openai.requests.response_format import (
    FORMAT,
    FORMATS,
    STRUCTURED_OUTPUTS,
    constraint_of,
    of_response_format,
)

FILL_CONTEXT = -1  # as max_tokens: llama.cpp's clients send it
MAX_STOPS = 16  # OpenAI allows four; lm-eval's tasks send up to six
MAX_ID_CHARS = 128

# Fields passed to `SamplingParams` under the same name.
SAMPLING_FIELDS = (
    "n temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty seed stop stop_token_ids "
    "ignore_eos max_tokens min_tokens prompt_logprobs skip_special_tokens spaces_between_special_tokens "
    "include_stop_str_in_output logit_bias allowed_token_ids bad_words skip_reading_prefix_cache speculation "
    "kv_policy"
).split()
SCHEDULING_FIELDS = tuple(SchedulingKwargs.__annotations__)
# Fields whose defaults a model's generation_config.json may set.
DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
# `SamplingParams` checks them all at once, after their number.
BIASES = {"type": "object", "additionalProperties": {"type": "number"}, "maxProperties": MAX_LOGIT_BIAS}


def _check_seed(seed: Any) -> Any:
    """The parser makes floats of integers over 64 bits, which would be refused for their type."""
    is_outside = isinstance(seed, int) and not -INT64 <= seed < INT64
    if is_outside or (isinstance(seed, float) and not -INT64 < seed < INT64):
        raise ApiError(400, f"seed is out of range: it must be from {-INT64} to {INT64 - 1}", param="seed")
    return seed


class StreamOptions(Body):
    """include_usage: a last chunk with usage. continuous_usage_stats: usage in every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False  # OpenAI's padding against traffic analysis; only false is accepted

    def model_post_init(self, _: Any) -> None:
        if self.include_obfuscation:
            message = "stream_options.include_obfuscation is not supported: leave it out"
            raise ApiError(400, message, param="stream_options.include_obfuscation")


class GenerationFields(Body):
    """Ranges that are not given here are checked by `SamplingParams` and `SchedulingOptions`.

    format_field: OpenAI's field for the form of the output, by which errors call it. lora_path: SGLang's field for an
    adapter, by its name.
    """

    format_field: ClassVar[str] = FORMAT
    model: str | None = None
    lora_path: str | None = None
    temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE)
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: Annotated[int | None, BeforeValidator(_check_seed), Field(ge=-INT64, lt=INT64)] = None
    stop: str | Annotated[Items[str], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Items[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = Field(0, ge=0)
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logit_bias: Annotated[dict[str, Any], WithJsonSchema(BIASES)] | None = None
    allowed_token_ids: Items[int] | None = None
    bad_words: Annotated[Items[str], Field(max_length=MAX_BAD_WORDS)] | None = None
    structured_outputs: Annotated[dict[str, Any], WithJsonSchema(STRUCTURED_OUTPUTS)] | None = None
    skip_reading_prefix_cache: bool | None = None
    kv_policy: bool | None = None
    speculation: bool | None = None
    cache_salt: str | None = Field(None, min_length=1, max_length=128, pattern=r"^[^@/\\\x00]+$")
    stream: bool = False
    request_id: str | None = Field(
        None, min_length=1, max_length=MAX_ID_CHARS, pattern=r"^[\x21-\x2e\x30-\x7e]+$"
    )  # no "/": a path names a response
    priority: int | None = None
    tenant: str | None = Field(None, min_length=1, max_length=MAX_TENANT_CHARS)
    queue_timeout_s: float | None = None
    deadline_s: float | None = None

    def sampling_params(self, defaults: Mapping[str, Any], **others: Any) -> SamplingParams:
        """defaults: the server's, for fields that the client did not set. others: parameters that the endpoint derives
        from fields of other names; they take precedence. Raises `RequestError`."""
        params = {**defaults, **fields_set(self, SAMPLING_FIELDS), **others}
        params.setdefault(PARAM, constraint_of(self.structured_outputs, self.read_format(), self.format_field))
        if params.get("max_tokens") == FILL_CONTEXT:
            params["max_tokens"] = None
        return SamplingParams(**params)

    @property
    def has_format(self) -> bool:
        """Whether the body has its field `format_field`."""
        return False

    def read_format(self) -> StructuredOutputsParams | None:
        """What that field asks for; None for any text. Raises `RequestError` with the path of what is invalid."""
        return None

    @property
    def is_constrained(self) -> bool:
        """Whether a form of the output may be asked for, which takes long to read where it is large."""
        return self.structured_outputs is not None or self.has_format

    @property
    def constraint_field(self) -> str:
        """The field that asks for it."""
        return self.format_field if self.structured_outputs is None else PARAM

    def scheduling(self, longest_s: float | None) -> SchedulingKwargs:
        """The scheduling options. longest_s: the server's limit on deadlines, and the default deadline."""
        options: Any = fields_set(self, SCHEDULING_FIELDS)
        if longest_s is not None:
            deadline_s = options.get("deadline_s", longest_s)
            if deadline_s > longest_s:
                raise RequestError(f"deadline_s={deadline_s} is over this server's limit of {longest_s}", "deadline_s")
            options["deadline_s"] = deadline_s
        return options


class SamplingFields(GenerationFields):
    """max_tokens: -1 for the rest of the context. stream_options: has no effect without `stream`."""

    n: int = Field(1, ge=1, le=MAX_N)
    response_format: Annotated[dict[str, Any], WithJsonSchema({"anyOf": list(FORMATS.values())})] | None = None
    max_tokens: int | None = Field(None, ge=-1)
    prompt_logprobs: int | None = Field(None, ge=-1)
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    truncation_side: str | None = Field(None, pattern="^(left|right)$")
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False

    def model_post_init(self, _: Any) -> None:
        if self.prompt_logprobs is not None and self.stream:
            raise ApiError(400, "prompt_logprobs cannot be streamed: leave stream out", param="prompt_logprobs")

    @property
    def has_format(self) -> bool:
        return self.response_format is not None

    def read_format(self) -> StructuredOutputsParams | None:
        return None if self.response_format is None else of_response_format(self.response_format)
