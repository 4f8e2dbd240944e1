"""Host: `StreamingConfig`: which KV a sequence keeps, and the checks of these options."""

from dataclasses import dataclass

from jaxserve.core.options.option_mappings import check_integer, option_error

PARAM = "kv_policy"

MAX_STREAM_TOKENS = 2**20
"""Tokens of a sequence whose KV is bounded: there the angle of a rotary embedding, a float32, is off by 0.03 rad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingConfig:
    """Attention sinks (StreamingLLM, arXiv 2309.17453): a sequence keeps its first tokens and its last ones.

    name: "streaming". num_sinks: of the first tokens. window: the most other tokens that a token attends to, its own
    included; whole pages are dropped, so it is up to a page less.
    """

    name: str
    window: int
    num_sinks: int = 4

    def __post_init__(self) -> None:
        if self.name != "streaming":
            raise option_error(PARAM, f"name={self.name!r} must be 'streaming'")
        check_integer(PARAM, "window", self.window, 1)
        check_integer(PARAM, "num_sinks", self.num_sinks, 0)

    @property
    def capacity(self) -> int:
        """The most tokens that are kept."""
        return self.num_sinks + self.window

    def check_sizes(self, page_size: int, max_model_len: int, windows: tuple[int | None, ...]) -> None:
        """Raise ConfigError unless the policy fits an engine. windows: of its KV groups."""
        if self.num_sinks > page_size:
            raise option_error(PARAM, f"num_sinks={self.num_sinks} must fit a page of {page_size} tokens")
        if self.window < 2 * page_size:
            raise option_error(PARAM, f"window={self.window} must be at least two pages of {page_size} tokens")
        if self.capacity > max_model_len:
            raise option_error(PARAM, f"num_sinks + window = {self.capacity} must fit max_model_len={max_model_len}")
        if None not in windows:
            raise option_error(PARAM, "all layers of this model have sliding windows: it keeps no more than these")
