"""Host: the options of arrivals and datasets of `jaxserve bench serve`, under vLLM's names where vLLM has them.

Each class checks its options and raises `ConfigError` with the name of the invalid one.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import option

RAMPS = ("linear", "exponential")
METRICS = ("ttft", "tpot", "itl", "e2el")
GOODPUT_METRICS = ("ttft", "tpot", "e2el")  # metrics with one value per request
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalOptions:
    """When requests are sent; see `arrivals`."""

    request_rate: float | None = option(
        None,
        "requests per second; inf: all at once, within --max-concurrency (default: inf, for a trace its own times)",
    )
    burstiness: float = option(
        1.0, "shape of the gamma distribution of gaps: 1: Poisson arrivals, below 1: bursts, inf: equal gaps"
    )
    ramp_up_strategy: str | None = option(
        None, "increase the rate during the run from --ramp-up-start-rps to --ramp-up-end-rps", RAMPS
    )
    ramp_up_start_rps: float | None = option(None, "requests per second at the start of a ramp")
    ramp_up_end_rps: float | None = option(None, "requests per second at the end of a ramp")
    trace_speed: float = option(1.0, "factor by which a trace is replayed faster than it was recorded")

    @property
    def has_rate(self) -> bool:
        """Whether the user sets the rate, which replaces the times of a trace."""
        return self.request_rate is not None or self.ramp_up_strategy is not None

    def __post_init__(self) -> None:
        _check_positive(self, "request_rate", "burstiness", can_be_inf=True)
        _check_positive(self, "ramp_up_start_rps", "ramp_up_end_rps", "trace_speed")
        ends = {name: getattr(self, name) for name in ("ramp_up_start_rps", "ramp_up_end_rps")}
        for name, value in ends.items():
            if (value is None) != (self.ramp_up_strategy is None):
                raise ConfigError(f"ramp_up_strategy, {' and '.join(ends)} must be set together", param=name)
        if self.ramp_up_strategy not in (None, *RAMPS):
            raise ConfigError(f"ramp_up_strategy must be one of {', '.join(RAMPS)}", param="ramp_up_strategy")
        if self.ramp_up_strategy is not None and self.request_rate is not None:
            raise ConfigError("a ramp has its own rates: leave out request_rate", param="request_rate")
        if self.burstiness != 1 and (not self.has_rate or self.request_rate == math.inf):
            raise ConfigError("burstiness needs a finite request_rate or a ramp", param="burstiness")
        if self.trace_speed != 1 and self.has_rate:
            raise ConfigError("trace_speed scales a trace's own times, which a rate replaces", param="trace_speed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomOptions:
    """Prompts of random words, in tokens; lengths are uniform in length × (1 ± ratio)."""

    random_input_len: int = option(1024, "tokens of a prompt")
    random_output_len: int = option(128, "tokens to generate")
    random_range_ratio: float = option(0.0, "maximum deviation from both lengths, as a share of them, below 1")
    random_prefix_len: int = option(0, "additional tokens at the start of all prompts, the same in each")

    def __post_init__(self) -> None:
        _check_counts(self, "random_input_len", "random_output_len")
        _check_counts(self, "random_prefix_len", least=0)
        if not 0 <= self.random_range_ratio < 1:
            raise ConfigError(
                f"random_range_ratio={self.random_range_ratio} must be from 0 to below 1", param="random_range_ratio"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRepetitionOptions:
    """Prompts that begin with one of several prefixes; lengths in tokens."""

    prefix_repetition_num_prefixes: int = option(10, "number of different prefixes")
    prefix_repetition_prefix_len: int = option(256, "tokens of a prefix")
    prefix_repetition_suffix_len: int = option(256, "tokens after the prefix, different in every prompt")
    prefix_repetition_output_len: int = option(128, "tokens to generate")

    def __post_init__(self) -> None:
        _check_counts(self, *(f.name for f in fields(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomOptions:
    """Prompts of a file: a text per line, or in .jsonl files prompt or prompt_token_ids, and output_len."""

    custom_output_len: int = option(256, "tokens to generate where a line has no output_len")

    def __post_init__(self) -> None:
        _check_counts(self, "custom_output_len")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGPTOptions:
    """First turns of the conversations of a JSON file."""

    sharegpt_output_len: int | None = option(None, "tokens to generate; default: the length of the answer in the file")

    def __post_init__(self) -> None:
        _check_counts(self, "sharegpt_output_len")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Lengths and times of a recorded trace: Azure's .csv, or Mooncake's .jsonl, whose equal blocks get equal text."""

    trace_max_len: int | None = option(None, "skip requests of more tokens than this, prompt and output together")

    def __post_init__(self) -> None:
        _check_counts(self, "trace_max_len")


def needs_tokenizer(options: "DatasetOptions") -> bool:
    """Whether building the requests needs token counts."""
    return not isinstance(options, CustomOptions) and getattr(options, "sharegpt_output_len", None) is None


DatasetOptions = RandomOptions | PrefixRepetitionOptions | CustomOptions | ShareGPTOptions | TraceOptions
DATASETS: dict[str, type[DatasetOptions]] = {
    "random": RandomOptions,
    "prefix_repetition": PrefixRepetitionOptions,
    "custom": CustomOptions,
    "sharegpt": ShareGPTOptions,
    "trace": TraceOptions,
}
FROM_FILES = ("custom", "sharegpt", "trace")  # datasets that read --dataset-path


def _check_counts(options: Any, *names: str, least: int = 1) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigError(f"{name}={value} must be at least {least}", param=name)


def _check_positive(options: Any, *names: str, can_be_inf: bool = False) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not (value > 0 and (can_be_inf or math.isfinite(value))):
            condition = "more than 0" if can_be_inf else "finite and more than 0"
            raise ConfigError(f"{name}={value} must be {condition}", param=name)
