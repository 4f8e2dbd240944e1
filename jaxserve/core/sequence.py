"""Host: `Sequence`: one sample of a request, with its tokens, results and status."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from jaxserve.core.request import Request


class Status(StrEnum):
    """Where a sequence is in its life cycle."""

    WAITING = "waiting"  # in the queue, new or after preemption
    WAITING_GRAMMAR = "waiting for its grammar"  # out of the queue while that is compiled
    WAITING_ADAPTER = "waiting for its adapter"  # out of the queue while that is read into host memory
    DEFERRED = "deferred"  # out of the queue while a running sequence computes the prefix that they share
    RUNNING = "running"  # in a running slot
    PAUSED = "paused"  # a beam until the host chooses its next token, with or without a slot; also a spare beam
    PREEMPTED = "preempted"  # lost its slot; joins the queue when no step in flight touches the slot
    FINISHED = "finished"


class TokenLogprobs(NamedTuple):
    """Log-probabilities at one position: the token's own, its rank (1 is the likeliest), and the likeliest tokens'."""

    logprob: float
    rank: int
    top_ids: np.ndarray  # int32[k]
    top: np.ndarray  # float32[k]


class Sequence:
    """Sample `index` of a request.

    The tokens are stored in the sequence's slot while it has one, and in an array of its own before and after.

    sequence_id: counts sequences in the order of arrival. status: set at each transition; see `Status`.
    finish_reason: "stop", "length", "abort", "timeout" or "error"; None until the sequence ends. stop_reason: the stop
    token id or stop string, None for an end-of-sequence token. logprobs: one entry per generated token.
    prompt_logprobs: one entry per prompt token, None for the first, which has no context, and before
    request.logprobs_start; only in sample 0.
    started_s: when the sequence first got a slot, on the clock of the arrival times. num_overtaken: later sequences
    that got a slot before it. num_preemptions: times that it lost its slot. num_charged: prompt tokens charged to its
    tenant. num_cached_tokens: prompt tokens taken over from the prefix cache, None if none were looked up.
    pooled: float64[D]: by request.pooling the sum of the hidden states computed since the sequence got its slot, or the
    last of them.
    """

    __slots__ = (
        "_num_tokens",
        "_tokens",
        "finish_reason",
        "index",
        "logprobs",
        "num_cached_tokens",
        "num_charged",
        "num_overtaken",
        "num_preemptions",
        "pooled",
        "prompt_logprobs",
        "request",
        "sequence_id",
        "slot",
        "started_s",
        "status",
        "stop_reason",
    )

    def __init__(self, sequence_id: int, request: Request, index: int):
        self.sequence_id = sequence_id
        self.request = request
        self.index = index
        self.status = Status.WAITING
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.slot = -1
        self.started_s: float | None = None
        self.num_cached_tokens: int | None = None
        self.num_charged = 0
        self.num_overtaken = self.num_preemptions = 0
        self._tokens = request.prompt_token_ids
        self._num_tokens = np.array([len(request.prompt_token_ids)], np.int32)
        self.logprobs: list[TokenLogprobs] | None = None
        self.prompt_logprobs: list[TokenLogprobs | None] | None = None
        self.pooled: np.ndarray | None = None
        if request.params.logprobs is not None:
            self.logprobs = []
        if request.params.prompt_logprobs is not None and index == 0:
            self.prompt_logprobs = list[TokenLogprobs | None]([None]) * self.prompt_len

    def __repr__(self) -> str:
        return f"Sequence({self.sequence_id}, {self.request.request_id}[{self.index}], {self.status})"

    @property
    def prompt_len(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        """Known tokens, prompt included."""
        return int(self._num_tokens[0])

    @property
    def tokens(self) -> np.ndarray:
        """int32[num_tokens]: prompt and generated tokens; a view that is valid until the next step."""
        return self._tokens[: self.num_tokens]

    @property
    def token_ids(self) -> list[int]:
        """The generated tokens, including the one that ended the sequence."""
        return self.tokens[self.prompt_len :].tolist()

    @property
    def first_unscored(self) -> int | None:
        """The first prompt position whose log-probability is asked for and not known yet, or None."""
        known, start = self.prompt_logprobs or [], max(1, self.request.logprobs_start)
        return next((i for i in range(start, len(known)) if known[i] is None), None)

    @property
    def has_started(self) -> bool:
        """Whether the sequence has had a slot."""
        return self.started_s is not None

    @property
    def is_paused(self) -> bool:
        """Whether it is a beam that waits for the host, or a spare beam."""
        return self.status is Status.PAUSED

    @property
    def is_finished(self) -> bool:
        return self.status is Status.FINISHED

    def attach(self, slot: int, tokens: np.ndarray, num_tokens: np.ndarray) -> None:
        """Move the tokens into a slot's row `tokens`, their count to `num_tokens[0]`: views that commits write."""
        tokens[: self.num_tokens] = self.tokens
        num_tokens[0] = self.num_tokens
        self.slot, self._tokens, self._num_tokens = slot, tokens, num_tokens

    def detach(self) -> None:
        """Copy the tokens out of the slot."""
        self._tokens, self._num_tokens = self.tokens.copy(), self._num_tokens.copy()
        self.slot = -1

    def append(self, token: int) -> None:
        """Append a token that the host has chosen."""
        count = self.num_tokens
        if self.slot < 0:  # a slot's row has room for the longest sequence
            self._tokens = np.append(self.tokens, np.int32(0))
        self._tokens[count] = token
        self._num_tokens[0] = count + 1

    def take_tokens(self, tokens: np.ndarray) -> None:
        """Replace the tokens; the sequence must have no slot."""
        self._tokens, self._num_tokens = tokens.copy(), np.array([len(tokens)], np.int32)

    def finish(self, reason: str, stop_reason: int | str | None = None, keep_tokens: int | None = None) -> None:
        """End the sequence, keeping its first `keep_tokens` generated tokens, by default all."""
        self.detach()
        if keep_tokens is not None:
            self._num_tokens[0] = min(self.num_tokens, self.prompt_len + keep_tokens)
            if self.logprobs is not None:
                del self.logprobs[keep_tokens:]
        self.status, self.finish_reason, self.stop_reason = Status.FINISHED, reason, stop_reason
