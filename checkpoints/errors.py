"""Host: the errors of finding, reading and writing checkpoints, and parts of their messages."""

from collections.abc import Sequence


class CheckpointError(ValueError):
    """A checkpoint file is malformed or lacks tensors that the model needs."""


class SourceError(ValueError):
    """A source names no readable model, or fetching it failed."""


def listed(problems: Sequence[str], most: int = 20) -> str:
    """The problems, each on an indented line of its own; beyond `most`, how many more there are."""
    lines = [*problems[:most], *([f"and {len(problems) - most} more"] if len(problems) > most else [])]
    return "".join(f"\n  {line}" for line in lines)


def reason_of(error: Exception) -> str:
    """Type and first line of an error that another library raised."""
    line = next(iter(str(error).splitlines()), "no reason given")
    return f"{type(error).__name__}: {line[:300]}"
