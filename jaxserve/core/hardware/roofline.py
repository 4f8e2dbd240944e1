"""Host: roofline: lower bounds on the time of a step, from bytes moved and operations at peak rates.

Weights are read once, and the keys and values that a row sees once per row; activations, logits and sampling are
neglected. Real steps take longer.
"""

from dataclasses import dataclass

from jaxserve.core.hardware.device_specs import DeviceType


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """All layers with the same window, on one device."""

    window: int | None
    position_bytes: int
    """Keys and values of one position."""
    pair_operations: int
    """Attention of one token to one position."""


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Cost of a model on one device. An addition and a multiplication are two operations, of codes of 8
    bits one: they are counted as so many of bfloat16 as take their time."""

    weight_bytes: int
    """Read in each step."""
    token_operations: int
    """Matrix products of all layers, per token."""
    row_operations: int
    """The head, per row: only the last token has logits."""
    layers: tuple[LayerCosts, ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """One step on one device; a time is None if the peak rate is unknown."""

    num_bytes: int
    num_operations: int
    bandwidth_s: float | None
    compute_s: float | None

    @property
    def step_s(self) -> float | None:
        """The longer of both times; None if either is unknown."""
        return None if self.bandwidth_s is None or self.compute_s is None else max(self.bandwidth_s, self.compute_s)


def step_roofline(
    costs: ModelCosts, num_tokens: int, num_rows: int, context: int, device: DeviceType | None
) -> Roofline:
    """The lower bound for a step whose tokens are spread evenly over its rows, each of which then has `context`
    positions, or its own tokens if those are more."""
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
    """Seconds to read these bytes of device memory at peak bandwidth; None if that is unknown."""
    return num_bytes / device.bandwidth_bytes_s if device and device.bandwidth_bytes_s is not None else None


def _touched(window: int | None, num_tokens: int, end: int) -> int:
    """Positions that the last `num_tokens` of `end` positions see: their own are written, the others read."""
    return end if window is None else min(end, window + num_tokens - 1)


def _pairs(window: int | None, num_tokens: int, end: int) -> int:
    """Sum over the last `num_tokens` of `end` positions of the positions that each sees."""
    return sum(min(window or end, position + 1) for position in range(end - num_tokens, end))
