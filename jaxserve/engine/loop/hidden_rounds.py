"""Host: `HiddenRounds`: how many rounds other rows draw in a step with late rows: those that the device would wait for.

A late row draws one token in a step, once the host knows what it may draw. Rounds that end before delay it by nothing
(on a CPU by what they take from the host, which shares its cores), and further ones by their own time:

    device | round 1 |  waits           | draw |        the other rows draw one token
    device | round 1 | round 2 | waits  | draw |        two, in the same time
    host   | commit the step before, masks |
"""

from collections import defaultdict
from dataclasses import dataclass

from jaxserve.core.buckets import Bucket

TRIAL_STEPS = 32
"""Steps after which one more round is tried, where the last trial has delayed late rows: a device that waits does not
say for how long. Then one step is longer by less than a round: 3 % of the time at most."""


@dataclass(slots=True)
class _Rounds:
    """Of a bucket. num_hidden, num_exposed: steps of so many rounds, one after the other. pause: hidden ones before a
    trial."""

    count: int = 1
    num_hidden: int = 0
    num_exposed: int = 0
    pause: int = 1


class HiddenRounds:
    """Follows steps with late rows, by bucket: in another a round takes another time. max_rounds: most of a step."""

    def __init__(self, max_rounds: int):
        self._max_rounds = max_rounds
        self._by_bucket = defaultdict[Bucket, _Rounds](_Rounds)
        self._planned: Bucket | None = None

    @property
    def num_rounds(self) -> int:
        """Rounds for the next step, if it has late rows and the bucket of the last one that was planned."""
        return 1 if self._planned is None else self._by_bucket[self._planned].count

    def plan(self, bucket: Bucket) -> None:
        """A step is planned. After one that has not only decoded, the next begins with one round."""
        self._planned = bucket if bucket.is_decode else None

    def observe(self, bucket: Bucket, num_rounds: int, *, is_hidden: bool) -> None:
        """Record a step with late rows, which may have had the number of another bucket. is_hidden: the device had done
        its rounds when the host was ready."""
        if self._max_rounds == 1:
            return
        rounds = self._by_bucket[bucket]
        if not is_hidden:
            rounds.count = max(1, min(rounds.count, num_rounds - 2 ** min(rounds.num_exposed, 3)))
            rounds.num_hidden, rounds.num_exposed, rounds.pause = 0, rounds.num_exposed + 1, TRIAL_STEPS
            return
        rounds.num_exposed = 0
        rounds.num_hidden += num_rounds == rounds.count  # its rows may need fewer
        if rounds.num_hidden >= rounds.pause:
            rounds.count = min(rounds.count + 1, self._max_rounds)
            rounds.num_hidden, rounds.pause = 0, 1
