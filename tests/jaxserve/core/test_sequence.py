"""A sequence's tokens are the same in its own array and in a slot."""

import numpy as np

from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.sequence import Sequence
from jaxserve.core.slot_table import SlotTable
from tests.support.fakes.fake_engine import make_request


def slot_table() -> SlotTable:
    return SlotTable(2, 16, KVGroups((None,), 4), (4,))


def test_tokens_written_to_the_slot_are_the_sequences():
    sequence, slots = Sequence(0, make_request("a", [5, 6, 7]), 0), slot_table()
    slot = slots.assign(sequence)
    slots.tokens[slot, 3] = 9
    slots.num_tokens[slot] += 1
    assert sequence.tokens.tolist() == [5, 6, 7, 9]
    assert sequence.token_ids == [9]


def test_tokens_stay_with_the_sequence_when_its_slot_goes_to_another():
    first, second = (Sequence(i, make_request(str(i), [i, i]), 0) for i in range(2))
    slots = slot_table()
    slot = slots.assign(first)
    first.detach()
    slots.free(slot)
    assert slots.assign(second) == slot
    assert first.tokens.tolist() == [0, 0]
    assert second.tokens.tolist() == [1, 1]


def test_each_occupant_of_a_slot_has_its_own_epoch():
    slots, epochs = slot_table(), set()
    for i in range(3):
        slot = slots.assign(sequence := Sequence(i, make_request(str(i), 2), 0))
        epochs.add((slot, int(slots.epoch[slot])))
        sequence.detach()
        slots.free(slot)
    assert len(epochs) == 3


def test_an_early_end_truncates_tokens_and_logprobs():
    sequence = Sequence(0, make_request("a", [5], logprobs=1), 0)
    tokens = np.zeros(8, np.int32)
    sequence.attach(0, tokens, count := np.zeros(1, np.int32))
    tokens[1:5], count[0] = [1, 2, 3, 4], 5
    sequence.logprobs += [None] * 4
    sequence.finish("stop", "END", keep_tokens=2)
    assert sequence.token_ids == [1, 2]
    assert len(sequence.logprobs) == 2
    assert (sequence.finish_reason, sequence.stop_reason, sequence.slot) == ("stop", "END", -1)


def test_the_prompt_of_a_request_is_never_written():
    request = make_request("a", [5, 6])
    sequence, slots = Sequence(0, request, 0), slot_table()
    slot = slots.assign(sequence)
    slots.tokens[slot, :] = 1
    sequence.finish("abort")
    assert request.prompt_token_ids.tolist() == [5, 6]


def test_stop_ids_grow_to_the_longest_list():
    slots = slot_table()
    slots.set_stop_ids(0, (1,))
    slots.set_stop_ids(1, (2, 3, 4))
    slots.set_stop_ids(1, (6,))
    assert slots.stop_ids.tolist() == [[1, -1, -1], [6, -1, -1]]
