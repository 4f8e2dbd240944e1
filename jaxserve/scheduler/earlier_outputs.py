"""Host: `EarlierOutputs`: outputs of ended sequences, kept on the device for the drafts of later ones.

A ring of tokens, one text after the other, each with a -1 behind it; the newest overwrites the oldest:

    … 7 3 -1 | 5 5 9 2 -1 | 8 4 …        next text: from here on
                            ^

A row may draft from texts of its own owner: requests of one tenant with one `cache_salt`, as with cached prefixes.
"""

from collections import deque

import numpy as np

from jaxserve.core.device_ops import EarlierTokens
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence

Key = tuple[str | None, object]  # (tenant, namespace of cached prefixes)


class EarlierOutputs:
    """num_tokens: size of the ring."""

    def __init__(self, num_tokens: int):
        self._num_tokens = num_tokens
        self._owners = dict[Key, int]()
        self._num_owners = 0
        self._num_written = 0
        self._texts = deque[tuple[int, Key]]()  # of each text that is not overwritten: its end, and its owner's key
        self._ops = list[EarlierTokens]()

    def owner(self, request: Request) -> int:
        """The number of a request's owner, from 1 on. Owners without a text may get a new one."""
        key = _key(request)
        if key not in self._owners:
            if len(self._owners) > self._num_tokens:  # more than have texts
                with_texts = {key for _, key in self._texts}
                self._owners = {key: number for key, number in self._owners.items() if key in with_texts}
            self._num_owners += 1
            self._owners[key] = self._num_owners
        return self._owners[key]

    def add(self, sequence: Sequence) -> None:
        """Keep the output of a sequence that has ended."""
        tokens = sequence.tokens[sequence.prompt_len :]
        tokens = tokens[max(0, len(tokens) + 1 - self._num_tokens) :]  # with its end as many as the ring holds
        if not len(tokens):
            return
        start, self._num_written = self._num_written, self._num_written + len(tokens) + 1
        places = np.arange(start, self._num_written) % self._num_tokens
        self._texts.append((self._num_written, _key(sequence.request)))
        while self._texts[0][0] <= self._num_written - self._num_tokens:
            self._texts.popleft()
        self._ops.append(EarlierTokens(self.owner(sequence.request), np.append(tokens, -1), places))

    def take_ops(self) -> tuple[EarlierTokens, ...]:
        """The texts added since the last call."""
        ops = tuple(self._ops)
        self._ops.clear()
        return ops


def make_earlier_outputs(config: SpeculativeConfig | None) -> EarlierOutputs | None:
    """None where no drafts come from earlier outputs."""
    num_tokens = 0 if config is None else config.num_earlier_tokens
    return EarlierOutputs(num_tokens) if num_tokens else None


def _key(request: Request) -> Key:
    return request.scheduling.tenant, request.cache_namespace
