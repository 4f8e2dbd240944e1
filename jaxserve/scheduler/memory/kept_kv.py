"""Host: the KV policy of an engine, applied to the sequences whose requests say so."""

import numpy as np

from jaxserve.scheduler.memory.page_tables import allocate_pages
from jaxserve.scheduler.state import SchedulerState


def begin_policy(state: SchedulerState, slot: int) -> None:
    """Let the policy take over a new slot; enough pages must be idle."""
    policy = state.kv_policy_of(state.occupant(slot).request)
    if policy is not None:
        policy.begin(state.slot_table, state.groups, slot, allocate_pages(state, policy.num_own_pages(state.groups)))


def make_drops(state: SchedulerState) -> None:
    """Drop what running slots do not keep for their next position."""
    policy, slot_table = state.limits.kv_policy, state.slot_table
    if policy is not None:
        for slot in np.flatnonzero(policy.is_due(slot_table)).tolist():
            state.pool.release(policy.drop(slot_table, state.groups, slot))


def has_dropped(state: SchedulerState, slot: int) -> bool:
    """Whether the slot's pages are not those that other sequences with its tokens have."""
    policy = state.kv_policy_of(state.occupant(slot).request)
    return policy is not None and policy.has_dropped(state.slot_table, state.groups, slot)
