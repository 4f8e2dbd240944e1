"""Host: the least that a step can take: bytes that memory must move, operations that must be done, over the peak rates.

Weights are read once, keys and values of what a row sees once a row; activations, logits and sampling count for
nothing. Floors, not forecasts: real steps take longer.
"""

from dataclasses import dataclass

from jaxserve.core.hardware.device_specs import DeviceType


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """All layers of one kind, on one device."""

    window: int | None
    position_bytes: int
    """Of one position's keys and values."""
    pair_operations: int
    """Of one token that looks at one position."""


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """What one device does of a model. An addition and a multiplication are two operations."""

    weight_bytes: int
    """That a step reads."""
    token_operations: int
    """Of the layers' matrices."""
    row_operations: int
    """Of the head: a row scores its last token alone."""
    layers: tuple[LayerCosts, ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """One step on one device; a time is None where the peak rate is not known."""

    num_bytes: int
    num_operations: int
    bandwidth_s: float | None
    compute_s: float | None

    @property
    def step_s(self) -> float | None:
        """The later of the two; None where either is not known."""
        return None if self.bandwidth_s is None or self.compute_s is None else max(self.bandwidth_s, self.compute_s)


def step_floor(costs: ModelCosts, num_tokens: int, num_rows: int, context: int, device: DeviceType | None) -> Roofline:
    """Of a step whose tokens are shared out evenly among its rows, each of which ends it with `context` positions (or
    with its own tokens, if those are more)."""
    length, num_longer = divmod(num_tokens, num_rows)
    num_bytes = costs.weight_bytes
    num_operations = num_tokens * costs.token_operations + num_rows * costs.row_operations
    for row_tokens, count in ((length, num_rows - num_longer), (length + 1, num_longer)):
        end = max(context, row_tokens)
        for layer in costs.layers:
            num_bytes += count * layer.position_bytes * _touched(layer.window, row_tokens, end)
            num_operations += count * layer.pair_operations * _pairs(layer.window, row_tokens, end)
    rate = device.bfloat16_operations_s if device else None
    compute_s = None if rate is None else num_operations / rate
    return Roofline(num_bytes, num_operations, read_time(num_bytes, device), compute_s)


def read_time(num_bytes: int, device: DeviceType | None) -> float | None:
    """Seconds in which a device reads these bytes of its memory at full bandwidth; None where that is not known."""
    return num_bytes / device.bandwidth_bytes_s if device and device.bandwidth_bytes_s is not None else None


def _touched(window: int | None, num_tokens: int, end: int) -> int:
    """Positions that the last `num_tokens` of `end` see; their own are written, the others read."""
    return end if window is None else min(end, window + num_tokens - 1)


def _pairs(window: int | None, num_tokens: int, end: int) -> int:
    """Positions that each of the last `num_tokens` of `end` sees, all together."""
    return sum(min(window or end, position + 1) for position in range(end - num_tokens, end))
