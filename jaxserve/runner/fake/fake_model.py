"""Host: `FakeModel`, a language model without arithmetic: its tokens are hashes of the tokens before them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MASK = 2**64 - 1
EMPTY_PREFIX = 0


def mix[I: (int, np.ndarray)](value: I) -> I:
    """A 64-bit hash (splitmix64) of a 64-bit number, or of each element of a uint64 array."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def extend_prefix[I: (int, np.ndarray)](prefix: int, token: I) -> I:
    """The hash of a prefix extended by one token, or by each element of a uint64 array."""
    return mix(prefix ^ ((token + 1) * 0xD6E8FEB86659FD93 & MASK))


@dataclass(frozen=True, slots=True)
class FakeModel:
    """Draws depend on the seed, the sample index, the position and every earlier token, as with a real model.

    stop_chance: probability that `stop_id` is drawn. bad_chance: probability that the logits are not finite.
    """

    vocab_size: int = 100
    stop_id: int = 0
    stop_chance: float = 0.0
    bad_chance: float = 0.0

    def draw(self, prefix: int, seed: int, index: int, position: int, is_allowed: Callable[[int], bool]) -> int | None:
        """The token at `position`, or None where the logits are bad, by chance or because no token is allowed."""
        state = mix(mix(mix(prefix ^ seed & MASK) ^ index) ^ position)
        if state / 2**64 < self.bad_chance:
            return None
        for _ in range(64):
            state = mix(state)
            token = self.stop_id
            if state / 2**64 >= self.stop_chance:
                token = (self.stop_id + 1 + state % (self.vocab_size - 1)) % self.vocab_size
            if is_allowed(token):
                return token
        return next(filter(is_allowed, range(self.vocab_size)), None)

    def hidden(self, prefix: int) -> float:
        """A number in [0, 10) in place of the hidden state of a prefix's last token."""
        return mix(prefix) % 1000 / 100

    def logprob(self, prefix: int, token: int) -> float:
        """A number in (-10, 0] that depends on the prefix and the token."""
        return -(extend_prefix(prefix, token) % 1000) / 100

    def logprobs(self, prefix: int) -> np.ndarray:
        """float64[vocab_size]: `logprob` of every token."""
        return (extend_prefix(prefix, np.arange(self.vocab_size, dtype=np.uint64)) % 1000) / -100.0
