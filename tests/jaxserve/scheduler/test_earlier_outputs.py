"""The ring of earlier outputs: places, owners, and what is overwritten."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingOptions
from jaxserve.core.request import Request
from jaxserve.scheduler.earlier_outputs import EarlierOutputs

PROMPT = np.int32([1, 2, 3])
REQUEST = Request("r", PROMPT, SamplingParams(), max_tokens=8, seed=0)


def ended(tokens, request=REQUEST) -> Any:
    return SimpleNamespace(tokens=np.concatenate([PROMPT, np.int32(tokens)]), prompt_len=3, request=request)


@pytest.mark.parametrize("size", [1, 2, 32])
def test_the_ring_holds_the_newest_texts_each_with_an_end(size):
    """Random texts, some longer than the ring: what lies in it is always the end of all texts, one after the other."""
    random = np.random.default_rng(0)
    outputs, ring, all_tokens = EarlierOutputs(size), np.full(size, -1), list[int]()
    for _ in range(100):
        text = random.integers(0, 9, random.integers(0, 40)).tolist()
        outputs.add(ended(text))
        for op in outputs.take_ops():
            ring[op.places] = op.tokens
            assert len(set(op.places.tolist())) == len(op.places)
        kept = text[max(0, len(text) + 1 - size) :]
        all_tokens += [*kept, -1] if kept else []
        newest = np.array(all_tokens[-size:])
        np.testing.assert_array_equal(ring[np.arange(len(all_tokens) - len(newest), len(all_tokens)) % size], newest)
    assert not outputs.take_ops()


def test_owners_are_a_tenant_with_a_salt():
    outputs = EarlierOutputs(16)
    tenants = (None, "a", "b")
    requests = [
        replace(REQUEST, cache_salt=salt, scheduling=SchedulingOptions(tenant=tenant))
        for tenant in tenants
        for salt in (None, "a", "b")
    ]
    numbers = [outputs.owner(request) for request in requests]
    assert sorted(numbers) == list(range(1, 10))
    assert [outputs.owner(replace(request, request_id="other", seed=5)) for request in requests] == numbers
    outputs.add(ended([4, 5], requests[4]))
    assert [op.owner for op in outputs.take_ops()] == [numbers[4]]


def test_owners_without_texts_are_forgotten_and_never_get_the_number_of_another():
    outputs = EarlierOutputs(8)
    outputs.add(ended([4, 5]))
    first, seen = outputs.owner(REQUEST), set[int]()
    for i in range(100):
        number = outputs.owner(replace(REQUEST, cache_salt=f"{i}"))
        assert number not in seen | {first}
        seen.add(number)
    assert outputs.owner(REQUEST) == first
    assert len(outputs._owners) <= 10
