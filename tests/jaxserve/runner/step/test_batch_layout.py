"""A packed plan is unpacked part by part; padding has no effect."""

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.row_layout import ROW_FIELDS, ROW_INDEX, SAMPLING_FIELDS, SAMPLING_INDEX, STEP_FIELDS, pack_sampling
from jaxserve.core.step_plan import StepPlan
from jaxserve.runner.step.batch_layout import BatchLayout, pack

GROUPS = KVGroups((32, 32, None), 16)
SCRATCH = 9


def plan(bucket, targets=None):
    rng = np.random.default_rng(0)
    return StepPlan(
        step_id=0,
        bucket=bucket,
        slots=np.int32([4, 0]),
        epochs=np.int32([0, 0]),
        query_lens=np.int32([1, 5]),
        starts=np.int32([-1, 16]),
        samples=np.array([True, False]),
        max_tokens=np.int32([3, 1]),
        max_drafts=np.int32([0, 0]),
        proposers=np.int32([0, 0]),
        num_rounds=3,
        num_decodes=1,
        tokens=np.int32([-1, 7, 8, 9, 10, 11]),
        targets=targets,
        sampling=rng.integers(0, 99, (2, len(SAMPLING_FIELDS))).astype(np.int32),
        extra_rows=np.arange(0),
        late_rows=np.arange(0),
        first_pages=np.int32([[3, 0], [3, 0], [0, 0]]),
        tables=(np.int32([[5, 6], [7, 8]]), np.int32([[9, 1], [2, 3]]), np.int32([[4, 4, 4], [11, 12, 13]])),
    )


def test_every_part_reads_back():
    layout = BatchLayout(Bucket(8, 4, 6), GROUPS, ((0, 2), (2, 3)))
    given = plan(layout.bucket, targets=np.int32([-1, 8, 9, 10, 11, -1]))
    parts = layout.split(pack(layout, given, SCRATCH))
    assert parts["header"].tolist() == [2, 1, 3]
    assert parts["tokens"].tolist() == [*given.tokens.tolist(), 0, 0]
    assert parts["targets"].tolist() == [-1, 8, 9, 10, 11, -1, -1, -1]
    rows = parts["rows"]
    assert rows[:, ROW_INDEX["slot"]].tolist() == [4, 0, SCRATCH, SCRATCH]
    assert rows[:, ROW_INDEX["query_len"]].tolist() == [1, 5, 0, 0]
    np.testing.assert_array_equal(rows[:2, len(STEP_FIELDS) :], given.sampling)
    np.testing.assert_array_equal(parts["first_pages0"][:, :2], given.first_pages[:2])
    for g, part in ((0, parts["tables0"][0]), (1, parts["tables0"][1]), (2, parts["tables1"][0])):
        width = given.tables[g].shape[1]
        np.testing.assert_array_equal(part[:2, :width], given.tables[g])
        assert not part[2:].any()
        assert not part[:, width:].any()


def test_parts_fill_the_buffer_without_gaps_and_decode_buckets_have_no_targets():
    for bucket in (Bucket(8, 4, 6), Bucket(4, 4, 6), Bucket(12, 4, 6, max_drafts=2)):
        layout = BatchLayout(bucket, GROUPS, ((0, 2), (2, 3)))
        parts = layout.split(np.arange(layout.size, dtype=np.int32))
        joined = np.concatenate([part.ravel() for part in parts.values()])
        np.testing.assert_array_equal(joined, np.arange(layout.size))
        assert ("targets" in parts) == (not bucket.only_decodes)
        assert len(parts["tokens"]) == (4 if bucket.is_verify else bucket.num_tokens)


def test_sampling_fields_travel_as_bits_in_the_order_of_the_table():
    values = {name: i + 0.5 if i < 6 else i for i, name in enumerate(SAMPLING_FIELDS)}
    values["seed_high"] = 0xFFFFFFFF
    packed = pack_sampling(values)
    assert len(ROW_FIELDS) == len(STEP_FIELDS) + len(packed)
    assert packed[:6].view(np.float32).tolist() == [i + 0.5 for i in range(6)]
    assert packed[SAMPLING_INDEX["seed_high"]] == -1
