"""Host: `BatchLayout` and `pack`: a plan packed into the single int32 buffer that a step receives.

    [ num_rows, num_decodes, num_rounds | tokens T | targets T | rows S x fields | kind 0 | kind 1 | … ]
                                             kind: first pages G x S, tables G x S x W

Only mixed buckets have targets; verify buckets have one token a row. Padding rows have no tokens and use the scratch
slot; all their other fields are zero, and page 0 is the scratch page.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.row_layout import ROW_FIELDS, ROW_INDEX, STEP_FIELDS
from jaxserve.core.step_plan import StepPlan

HEADER = 3


@dataclass(frozen=True)
class BatchLayout:
    """The offset of each part of a bucket's buffer; shared by `pack` on the host and `unpack` on the device.

    kinds: the half-open range of KV groups of each layer kind. has_drops: first pages of groups without a window count
    pages that streaming rows have dropped; else they are 0. has_adapters: some rows have adapters.
    """

    bucket: Bucket
    groups: KVGroups
    kinds: tuple[tuple[int, int], ...]
    has_drops: bool = False
    has_adapters: bool = False

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        bucket, rows = self.bucket, self.bucket.num_rows
        tokens = rows if bucket.is_verify else bucket.num_tokens
        shapes: dict[str, tuple[int, ...]] = {"header": (HEADER,), "tokens": (tokens,)}
        if not bucket.only_decodes:
            shapes["targets"] = (tokens,)
        shapes["rows"] = (rows, len(ROW_FIELDS))
        for k, (start, end) in enumerate(self.kinds):
            width = self.groups.num_columns(start, bucket.num_columns, bucket.max_row_span)
            shapes[f"first_pages{k}"] = (end - start, rows)
            shapes[f"tables{k}"] = (end - start, rows, width)
        return shapes

    @cached_property
    def size(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def split(self, buffer: Any) -> dict[str, Any]:
        """The parts of a buffer by name: views of a numpy array, slices of a traced array."""
        parts: dict[str, Any] = {}
        offset = 0
        for name, shape in self.shapes.items():
            end = offset + math.prod(shape)
            parts[name] = buffer[offset:end].reshape(shape)
            offset = end
        return parts


def pack(layout: BatchLayout, plan: StepPlan, scratch_slot: int) -> np.ndarray:
    """The buffer of one step; a new array each time, because the device may still read the previous one."""
    buffer = np.zeros(layout.size, np.int32)
    parts = layout.split(buffer)
    num_rows, num_tokens = plan.num_rows, plan.num_tokens
    num_decodes = 0 if plan.bucket.is_verify else plan.num_decodes  # drafts follow
    parts["header"][:] = num_rows, num_decodes, plan.num_rounds
    parts["tokens"][:num_tokens] = plan.tokens
    if "targets" in parts:
        parts["targets"][:] = -1
        if plan.targets is not None:
            parts["targets"][:num_tokens] = plan.targets
    rows = parts["rows"]
    rows[num_rows:, ROW_INDEX["slot"]] = scratch_slot
    rows = rows[:num_rows]
    rows[:, ROW_INDEX["slot"]] = plan.slots
    rows[:, ROW_INDEX["query_len"]] = plan.query_lens
    rows[:, ROW_INDEX["start"]] = plan.starts
    rows[:, ROW_INDEX["samples"]] = plan.samples
    if len(plan.late_rows):
        rows[plan.late_rows, ROW_INDEX["samples"]] = 0
    rows[:, ROW_INDEX["max_tokens"]] = plan.max_tokens
    if plan.bucket.is_verify:
        rows[:, ROW_INDEX["max_drafts"]] = plan.max_drafts
        rows[:, ROW_INDEX["proposer"]] = plan.proposers
    rows[:, len(STEP_FIELDS) :] = plan.sampling
    for k, (start, end) in enumerate(layout.kinds):
        parts[f"first_pages{k}"][:, :num_rows] = plan.first_pages[start:end]
        for g in range(start, end):
            table = plan.tables[g]
            parts[f"tables{k}"][g - start, :num_rows, : table.shape[1]] = table
    return buffer
