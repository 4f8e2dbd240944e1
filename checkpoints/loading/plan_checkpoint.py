"""Host: `plan_checkpoint`: which tensors of an open checkpoint fill which leaves; biases of zeros that have no place in
the model are left."""

from collections.abc import Sequence
from functools import partial

from checkpoints.mapping.load_plan import Assignment, plan_load
from checkpoints.mapping.rules import Rule, Shapes
from checkpoints.mapping.zero_biases import is_zero_bias
from checkpoints.open_checkpoint import Checkpoint


def plan_checkpoint(checkpoint: Checkpoint, shapes: Shapes, rules: Sequence[Rule]) -> tuple[Assignment, ...]:
    """See `plan_load`."""
    may_be_left = partial(is_zero_bias, checkpoint.file)
    return plan_load(str(checkpoint.weights), checkpoint.tensors, shapes, rules, may_be_left)
