"""Host: `plan_load`: assigns a file's tensors to the leaves of the tree, from names and shapes alone.

Every tensor of the file is used exactly once, but for those that change nothing, and every row of every leaf is filled
exactly once. All mismatches are reported together, before any weights are read.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from checkpoints.errors import CheckpointError, listed
from checkpoints.formats.tensor_file import INTEGER_DTYPES, TensorInfo
from checkpoints.mapping.rules import Rule, Run, Shapes
from checkpoints.mapping.transforms import Transform


@dataclass(frozen=True, slots=True)
class Assignment:
    """One tensor of the file and the runs of its rows that fill one leaf."""

    info: TensorInfo
    leaf: str
    runs: tuple[Run, ...]
    transform: Transform


def plan_load(
    where: str,
    tensors: Mapping[str, TensorInfo],
    shapes: Shapes,
    rules: Sequence[Rule],
    may_be_left: Callable[[TensorInfo], bool] = lambda _: False,
) -> tuple[Assignment, ...]:
    """Assigns the file's tensors to the leaves `shapes` (path → shape).

    may_be_left: whether a tensor that has no place in the model changes nothing. Raises one `CheckpointError` that
    begins with `where` and lists all mismatches.
    """
    problems: list[str] = []
    found: dict[tuple[int, int], str] = {}
    assignments: list[Assignment] = []
    for name, info in tensors.items():
        matches = [(i, layer) for i, rule in enumerate(rules) if (layer := rule.match(name)) is not None]
        if len(matches) > 1:
            raise ValueError(f"{name!r} matches {len(matches)} rules: {[rules[i].pattern for i, _ in matches]}")
        if not matches:
            if not may_be_left(info):
                problems.append(f"unexpected: {name}")
            continue
        rule, layer = rules[matches[0][0]], matches[0][1]
        if rule.path is None:
            continue
        if (leaf := rule.leaf(layer)) not in shapes:
            if not may_be_left(info):
                problems.append(f"unexpected: {name} (the model has no {leaf})")
            continue
        if matches[0] in found:
            problems.append(f"twice: {name} and {found[matches[0]]} are the same tensor")
            continue
        found[matches[0]] = name
        assignment = Assignment(info, leaf, rule.runs(layer, shapes[leaf]), rule.transform)
        problems.extend(_misfits(assignment, shapes[leaf]))
        assignments.append(assignment)
    problems.extend(_missing(found, shapes, rules))
    if problems:
        plural = "s" if len(problems) > 1 else ""
        raise CheckpointError(
            f"{where}: its tensors do not fit the model, {len(problems)} problem{plural}{listed(problems)}"
        )
    return tuple(assignments)


def _misfits(assignment: Assignment, leaf_shape: tuple[int, ...]) -> Iterator[str]:
    info, runs = assignment.info, assignment.runs
    num_rows = max(run.source + run.num_rows for run in runs)
    expected = (num_rows, *leaf_shape[len(runs[0].lead) + 1 :])
    if info.shape != expected:
        yield f"shape: {info.name} is {list(info.shape)}, the model needs {list(expected)}"
    if info.dtype in INTEGER_DTYPES:
        yield f"dtype: {info.name} holds integers ({info.dtype}); integer quantization is not supported"


def _missing(found: Mapping[tuple[int, int], str], shapes: Shapes, rules: Sequence[Rule]) -> Iterator[str]:
    runs: dict[str, list[Run]] = defaultdict(list)
    for i, rule in enumerate(rules):
        for layer in rule.layers:
            if (leaf := rule.leaf(layer)) in shapes:
                runs[leaf].extend(rule.runs(layer, shapes[leaf]))
                if (i, layer) not in found:
                    yield f"missing: {rule.tensor_name(layer)}"
    for leaf, shape in shapes.items():
        yield from _gaps(leaf, shape, runs[leaf])


def _gaps(leaf: str, shape: tuple[int, ...], runs: Sequence[Run]) -> Iterator[str]:
    """Rows of a leaf that the rules leave unfilled or fill twice, whatever the file holds."""
    if not runs:
        yield f"unfilled: no rule fills {leaf}"
        return
    axis = len(runs[0].lead)
    stops: dict[tuple[int, ...], int] = {}
    for run in sorted(runs, key=lambda run: (run.lead, run.target)):
        expected = stops.get(run.lead, 0)
        if run.target != expected or run.num_padding < 0:
            yield f"unfilled: rows of {leaf}{list(run.lead)} are filled never or twice at {min(run.target, expected)}"
        stops[run.lead] = run.target + run.num_rows + run.num_padding
    leads = set(np.ndindex(*shape[:axis]))
    for lead in sorted(stops.keys() - leads):
        yield f"unfilled: the rules fill {leaf}{list(lead)}, which is outside its shape {list(shape)}"
    for lead in sorted(leads):
        if stops.get(lead) != shape[axis]:
            yield f"unfilled: the rules fill {stops.get(lead, 0)} of the {shape[axis]} rows of {leaf}{list(lead)}"
