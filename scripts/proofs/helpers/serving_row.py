"""`Row`, one line of the table of `scripts/prove serving`, and the settings and helpers that its parts share."""

import re
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any
from urllib.request import urlopen

MODEL = "smollm2-135m-instruct"
ADMIN = "an-admin-key"
NUM_SEQS = 32
SIZES = ("--max-num-seqs", str(NUM_SEQS), "--max-num-batched-tokens", "256", "--buckets", "8 32 64x32 256x32")


@dataclass(frozen=True)
class Row:
    """what: the action. found, wanted: the result and the requirement, as text. holds: the requirement is met."""

    what: str
    found: str
    wanted: str
    holds: bool

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def line(self, part: str) -> str:
        return f"| {part} | {self.what} | {self.found}{'' if self.holds else ' (!)'} | {self.wanted} |"


class Progress:
    """Prints progress to standard error at most every ten seconds."""

    def __init__(self, noun: str, total: int):
        self._noun, self._total, self._printed_s = noun, total, time.monotonic()

    def __call__(self, done: int) -> None:
        if time.monotonic() - self._printed_s > 10:
            self._printed_s = time.monotonic()
            print(f"  {done} of {self._total} {self._noun}", file=sys.stderr)


def gauge(url: str, name: str, **labels: str) -> float:
    """The value of a metric of /metrics with these labels. Raises LookupError where there is none."""
    with urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    for line in lines:
        if re.match(rf"{re.escape(name)}[{{ ]", line) and all(each in line for each in wanted):
            return float(line.rpartition(" ")[2])
    raise LookupError(f"/metrics has no {name} {labels}")


def num_busy(url: str) -> int:
    """Number of running and waiting samples."""
    return int(gauge(url, "jaxserve:num_requests_running") + gauge(url, "jaxserve:num_requests_waiting"))


def until_quiet(url: str, limit_s: float = 30.0) -> float:
    """Waits until no sample runs or waits, for at most `limit_s`; returns the seconds that passed."""
    started_s = time.monotonic()
    while num_busy(url) and time.monotonic() - started_s < limit_s:
        time.sleep(0.02)
    return time.monotonic() - started_s
