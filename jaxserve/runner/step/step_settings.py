"""Device: `StepSettings`, the settings that are static in every step of an engine."""

from dataclasses import dataclass

from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings


@dataclass(frozen=True, slots=True)
class StepSettings:
    """max_logprobs: candidates in each log-probability entry. tile_rows: rows of a tile in a batch-invariant engine
    (`each_tile`); None: all rows at once.
    """

    model: Settings
    max_logprobs: int
    tile_rows: int | None = None

    @property
    def context(self) -> Context:
        model = self.model
        return Context(model.mesh, model.attention_backend, page_layout=model.page_layout, tile_rows=self.tile_rows)
