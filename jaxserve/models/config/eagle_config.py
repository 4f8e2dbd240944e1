"""Host: `EagleConfig`: the shape of an EAGLE-3 draft."""

from dataclasses import dataclass, replace

from jaxserve.models.config.model_config import ModelConfig

NUM_TAPS = 3


@dataclass(frozen=True, slots=True)
class EagleConfig:
    """model: the draft's one layer, with its own vocabulary. tap_layers: layers of the target whose inputs it reads;
    None: `default_taps`. vocab_size: of the target."""

    model: ModelConfig
    tap_layers: tuple[int, ...] | None
    vocab_size: int

    def for_context(self, max_len: int) -> "EagleConfig":
        """See `ModelConfig.for_context`."""
        return replace(self, model=self.model.for_context(max_len))

    def taps_of(self, target: ModelConfig) -> tuple[int, ...]:
        return default_taps(target.num_layers) if self.tap_layers is None else self.tap_layers


def default_taps(num_layers: int) -> tuple[int, ...]:
    """A low, a middle and a high layer, as in the code of the authors (arXiv 2503.01840)."""
    return (2, num_layers // 2, num_layers - 3)
