"""The table of a packed adapter names the pages that it got; its digest tells contents apart."""

import numpy as np
import pytest

from jaxserve.lora.packed_adapter import PackedAdapter
from tests.support.fakes.fake_adapters import fake_packed


def test_a_table_names_pages_and_nothing():
    where = np.array([[[1, 2], [0, 3]], [[3, 0], [0, 0]]], np.int32)
    packed = PackedAdapter(np.zeros((4, 3, 2, 8, 16), np.float16), where)
    table = packed.table(np.array([40, 7, 12], np.int32))
    assert table.dtype == np.int32
    assert table.tolist() == [[[40, 7], [0, 12]], [[12, 0], [0, 0]]]
    with pytest.raises(ValueError, match="3 pages gets 2"):
        packed.table(np.array([40, 7], np.int32))


def test_digests_differ_by_content_shape_and_places():
    packed = fake_packed("/files/a")
    same = fake_packed("/files/a")
    assert packed.digest == same.digest
    others = [
        fake_packed("/files/b"),
        PackedAdapter(packed.content, packed.where[:, :, ::-1].copy()),
        PackedAdapter(packed.content.reshape(1, -1, 1, 1, 16), packed.where),
        PackedAdapter(packed.content.astype(np.float64), packed.where),
    ]
    assert len({other.digest for other in others} | {packed.digest}) == 5


def test_a_digest_does_not_depend_on_the_order_in_memory():
    packed = fake_packed("/files/a")
    turned = PackedAdapter(np.asfortranarray(packed.content), packed.where)
    assert turned.digest == packed.digest
