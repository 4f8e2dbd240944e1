"""Host: `SamplingFields`: the fields shared by completions and chats, for sampling and for scheduling."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_checks import MAX_LOGIT_BIAS
from jaxserve.core.options.sampling_params import MAX_BAD_WORDS, MAX_N, SamplingParams
from jaxserve.core.options.scheduling_options import MAX_TENANT_CHARS, SchedulingKwargs
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.base_body import INT64, Body, Items, fields_set

MAX_STOPS = 16  # OpenAI allows four; lm-eval's tasks send up to six
MAX_TEMPERATURE = 2.0  # OpenAI's limit
MAX_ID_CHARS = 128

# Fields passed to `SamplingParams` under the same name.
SAMPLING_FIELDS = (
    "n temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty seed stop stop_token_ids "
    "ignore_eos max_tokens min_tokens prompt_logprobs skip_special_tokens spaces_between_special_tokens "
    "include_stop_str_in_output logit_bias allowed_token_ids bad_words skip_reading_prefix_cache"
).split()
SCHEDULING_FIELDS = tuple(SchedulingKwargs.__annotations__)
# Fields whose defaults a model's generation_config.json may set.
DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")


def _check_num_biases(biases: Any) -> Any:
    """Refuses too many entries before each is validated."""
    entries: Any = biases
    if isinstance(biases, dict) and len(entries) > MAX_LOGIT_BIAS:
        message = f"logit_bias holds {len(entries)} entries; at most {MAX_LOGIT_BIAS} are allowed"
        raise ApiError(400, message, param="logit_bias")
    return entries


class StreamOptions(Body):
    """include_usage: a last chunk with usage. continuous_usage_stats: usage in every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False  # OpenAI's padding against traffic analysis; only false is accepted

    def model_post_init(self, _: Any) -> None:
        if self.include_obfuscation:
            raise ApiError(400, "include_obfuscation is not supported: leave it out", param="stream_options")


class SamplingFields(Body):
    """Ranges that are not given here are checked by `SamplingParams` and `SchedulingOptions`."""

    model: str | None = None
    n: int = Field(1, ge=1, le=MAX_N)
    temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE)
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = Field(None, ge=-INT64, lt=INT64)
    stop: str | Annotated[Items[str], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Items[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = Field(None, ge=0)
    min_tokens: int = Field(0, ge=0)
    prompt_logprobs: int | None = Field(None, ge=-1)
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logit_bias: Annotated[dict[str, float], BeforeValidator(_check_num_biases)] | None = None
    allowed_token_ids: Items[int] | None = None
    bad_words: Annotated[Items[str], Field(max_length=MAX_BAD_WORDS)] | None = None
    skip_reading_prefix_cache: bool | None = None
    cache_salt: str | None = Field(None, min_length=1, max_length=128, pattern=r"^[^@/\\\x00]+$")
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    truncation_side: str | None = Field(None, pattern="^(left|right)$")
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    request_id: str | None = Field(None, min_length=1, max_length=MAX_ID_CHARS, pattern=r"^[\x21-\x7e]+$")
    priority: int | None = None
    tenant: str | None = Field(None, min_length=1, max_length=MAX_TENANT_CHARS)
    queue_timeout_s: float | None = None
    deadline_s: float | None = None

    def model_post_init(self, _: Any) -> None:
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options needs stream=true", param="stream_options")
        if self.prompt_logprobs is not None and self.stream:
            raise ApiError(400, "prompt_logprobs cannot be streamed: leave stream out", param="prompt_logprobs")

    def sampling_params(self, defaults: Mapping[str, Any], **others: Any) -> SamplingParams:
        """defaults: the server's, for fields that the client did not set. others: parameters that the endpoint derives
        from fields of other names; they take precedence. Raises `RequestError`."""
        return SamplingParams(**{**defaults, **fields_set(self, SAMPLING_FIELDS), **others})

    def scheduling(self, longest_s: float | None) -> SchedulingKwargs:
        """The scheduling options. longest_s: the server's limit on deadlines, and the default deadline."""
        options: Any = fields_set(self, SCHEDULING_FIELDS)
        if longest_s is not None:
            deadline_s = options.get("deadline_s", longest_s)
            if deadline_s > longest_s:
                raise RequestError(f"deadline_s={deadline_s} is over this server's limit of {longest_s}", "deadline_s")
            options["deadline_s"] = deadline_s
        return options
