"""Messages arrive whole, rows of masks are shared, and equal masks are one array."""

import os
import socket
from threading import Thread

import numpy as np
import pytest

from jaxserve.constrained.mask_memory import MaskMemory
from jaxserve.constrained.mask_table import MAX_ALIKE, MAX_SAMPLES, SAMPLE, MaskTable
from jaxserve.constrained.message_channel import MessageChannel


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield MessageChannel(ours), theirs
    ours.close()
    theirs.close()


def test_messages_arrive_whole_and_in_order(ends):
    channel, other = ends
    messages = [{"a": "é😀\ud800"}, {}, {"tokens": list(range(100_000))}]

    def send() -> None:
        for message in messages:
            MessageChannel(other).send(message)

    sender = Thread(target=send)
    sender.start()
    assert [channel.receive(10) for _ in messages] == messages
    sender.join()


def test_a_message_in_pieces_waits_for_its_end(ends):
    channel, other = ends
    data = len(b'{"a":1}').to_bytes(4, "little") + b'{"a":1}'
    for i in range(len(data)):
        with pytest.raises(TimeoutError):
            channel.receive(0)
        other.sendall(data[i : i + 1])
    assert channel.receive(0) == {"a": 1}


def test_a_full_connection_times_out_and_a_closed_one_ends(ends):
    channel, other = ends
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    with pytest.raises(TimeoutError):
        channel.send({"a": "x" * 10_000_000}, 0.01)
    other.close()
    with pytest.raises(EOFError):
        channel.receive(1)
    with pytest.raises(EOFError):
        channel.send({})


def test_rows_are_shared_and_grow():
    own = MaskMemory.create(num_words=3, num_rows=2)
    other = MaskMemory(os.dup(own.descriptor), 3)
    own.put(1, 70, True)
    own.put(1, 64, True)
    own.put(1, 64, False)
    assert (other.has(1, 70), other.has(1, 64), other.has(0, 70)) == (True, False, False)
    assert (other.is_empty(0), other.is_empty(1)) == (True, False)
    view = np.frombuffer(own.memory, np.uint32)
    own.grow(5)
    other.grow(5)
    other.put(4, 0, True)
    assert own.has(4, 0)
    other.put(0, 1, True)
    assert view[0] == 2
    other.clear(0)
    assert own.is_empty(0)
    assert own.has(1, 70)
    os.close(other.descriptor)


def test_equal_masks_are_one_array_and_never_change():
    table, row = MaskTable(), np.arange(2000, dtype=np.uint32)
    first = table.find(row)
    row[1] = 7  # outside the sample
    second = table.find(row)
    assert table.find(row.copy()) is second
    assert second is not first
    assert (first[1], second[1]) == (1, 7)
    assert table.find(np.arange(2000, dtype=np.uint32)) is first
    assert not first.flags.writeable
    row[SAMPLE] = 3
    assert table.find(row) is not second


def test_the_table_forgets_old_masks():
    table, row = MaskTable(), np.zeros(100, np.uint32)
    first = table.find(row)
    for i in range(1, MAX_ALIKE + 1):
        row[1] = i
        table.find(row)
    assert table.find(np.zeros(100, np.uint32)) is not first
    kept = table.find(row)
    for i in range(1, MAX_SAMPLES):
        row[0] = i
        table.find(row)
    row[0] = 0
    assert table.find(row) is kept
    for i in range(1, MAX_SAMPLES + 1):
        row[0] = 10_000 + i
        table.find(row)
    row[0] = 0
    assert table.find(row) is not kept
