"""Host: values of a quantization config, and errors that name where they stand."""

from dataclasses import dataclass
from typing import Any, cast

from checkpoints.errors import CheckpointError

_INSTEAD = (
    "jaxserve reads 'fp8', 'fbgemm_fp8', 'gptq', 'awq', 'bitsandbytes' and 'compressed-tensors', GGUF files and "
    "unquantized weights: use the model in one of these forms"
)


@dataclass(frozen=True, slots=True)
class Where:
    """A file, and a place in it."""

    text: str

    def __truediv__(self, key: str) -> "Where":
        return Where(f"{self.text}.{key}")

    def fault(self, fault: str) -> CheckpointError:
        return CheckpointError(f"{self.text} {fault}")

    def unsupported(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.text}: {what} is not supported; {_INSTEAD}")


def object_of(value: Any) -> dict[str, Any] | None:
    """The value if it is a JSON object."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def group_sizes_of(value: Any, where: Where) -> frozenset[int]:
    """Inputs that share a scale, -1: all of a row; none where it is not given."""
    if value is None:
        return frozenset()
    if type(value) is not int or not (value == -1 or 0 < value < 2**31):
        raise where.fault(f"must be a number of inputs, or -1 for all, not {value!r}")
    return frozenset({value})


def sizes_of(value: Any, where: Where) -> tuple[int, int]:
    """Rows and columns."""
    match value:
        case [int(rows), int(columns)] if 0 < rows < 2**31 and 0 < columns < 2**31:
            return rows, columns
        case _:
            raise where.fault(f"must be two sizes, rows and columns, not {value!r}")
