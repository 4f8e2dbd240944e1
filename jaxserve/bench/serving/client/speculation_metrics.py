"""Host: the figures of speculative decoding in a server's metrics, under vLLM's names."""

import re
from collections.abc import Mapping
from typing import Any

_NAME = "vllm:spec_decode_num_"
_SAMPLE = re.compile(
    rf"^{_NAME}(\w+?)(?:_total)?(?:\{{(.*)\}})? (\d{{1,20}}(?:\.\d*)?(?:[eE]\+?\d{{1,2}})?)$", re.MULTILINE
)
_POSITION = re.compile(r'position="(\d+)"')

Counts = Mapping[tuple[str, int | None], float]
"""Count by name and, for counts per position, position in the draft."""


def read_counts(metrics: str) -> Counts:
    """The counts in the text of /metrics, summed over labels; empty without speculation."""
    counts: dict[tuple[str, int | None], float] = {}
    for name, labels, value in _SAMPLE.findall(metrics):
        position = _POSITION.search(labels)
        key = (name, int(position[1]) if position else None)
        counts[key] = counts.get(key, 0.0) + float(value)
    return counts


def speculation(before: Counts, after: Counts) -> dict[str, Any]:
    """The figures between two readings, under vLLM's keys; empty where nothing was drafted.

    The acceptance rate is in percent, those by position are fractions.
    """
    grown = {key: value - before.get(key, 0.0) for key, value in after.items()}
    drafts, drafted, accepted = (grown.get((name, None), 0.0) for name in ("drafts", "draft_tokens", "accepted_tokens"))
    if drafts <= 0 or drafted <= 0:
        return {}
    by_position = sorted((key[1], value) for key, value in grown.items() if key[1] is not None)
    return {
        "spec_decode_acceptance_rate": 100 * accepted / drafted,
        "spec_decode_acceptance_length": 1 + accepted / drafts,
        "spec_decode_num_drafts": int(drafts),
        "spec_decode_draft_tokens": int(drafted),
        "spec_decode_accepted_tokens": int(accepted),
        "spec_decode_per_position_acceptance_rates": [value / drafts for _, value in by_position],
    }
