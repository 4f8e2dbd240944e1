"""Host: `PassTimes`: how much longer a forward pass takes in a verify or mixed bucket than in a decode bucket."""

import statistics
from collections import defaultdict, deque
from collections.abc import Sequence

from jaxserve.core.buckets import Bucket

TRIAL_SHARE = 0.015  # of the time, at most, that trials of slower buckets take longer
NUM_STEPS = 5  # of a bucket, whose times are kept
LEAST_STEPS = 2  # of a decode bucket: one of them may contain the next step's compilation, 2.4 s in a step of 70 ms


Pass = tuple[Bucket, int]
"""A verify or mixed bucket, and the number of the last proposer that runs in it."""


class PassTimes:
    """Each pass in such a bucket is compared with the decode passes that were measured last before it: the speed of a
    machine changes by a quarter within seconds, and times of different moments say little of a bucket."""

    def __init__(self) -> None:
        self._decode_s: defaultdict[Bucket, deque[float]] = defaultdict(lambda: deque(maxlen=NUM_STEPS))
        self._ratios: defaultdict[tuple[Bucket, Pass], deque[float]] = defaultdict(lambda: deque(maxlen=NUM_STEPS))
        self._has_run: set[Bucket] = set()  # a bucket's first step may have compiled it

    def observe(self, bucket: Bucket, seconds: float, decode: Bucket | None, proposer: int = 0) -> None:
        """Record the time of one pass. decode: what another bucket is used instead of. proposer: the last that ran."""
        if bucket in self._has_run:
            if bucket.is_decode:
                self._decode_s[bucket].append(seconds)
            elif decode is not None and self.is_known(decode):
                self._ratios[decode, (bucket, proposer)].append(seconds / min(self._decode_s[decode]))
        self._has_run.add(bucket)

    def is_known(self, decode: Bucket) -> bool:
        return len(self._decode_s[decode]) >= LEAST_STEPS

    def slowdowns(self, decode: Bucket, longer: Sequence[Bucket], proposer: int = 0) -> list[float]:
        """Times of passes in `longer`, narrow buckets first, over that of one in `decode`.

        What was never measured is taken to grow with its tokens from the first bucket, and to be 1 in that.
        """
        found = list[float]()
        for bucket in longer:
            if ratios := self._ratios[decode, (bucket, proposer)]:
                found.append(statistics.median_low(ratios))
            elif found:
                grown = (bucket.num_tokens - decode.num_tokens) / (longer[0].num_tokens - decode.num_tokens)
                found.append(1 + (found[0] - 1) * grown)
            else:
                found.append(1.0)
        return found
