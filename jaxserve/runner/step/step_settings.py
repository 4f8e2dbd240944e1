"""Device: `StepSettings`, the settings that are static in every step of an engine."""

from dataclasses import dataclass

from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.row_tiles import RowTiles
from jaxserve.runner.drafts.acceptance_rules import AcceptanceRule
from jaxserve.runner.drafts.proposer import Proposer
from pallas_kernels.lora_matmul.adapter_layout import AdapterLayout


@dataclass(frozen=True, slots=True)
class StepSettings:
    """max_logprobs: candidates in each log-probability entry. tiles: of rows, in a batch-invariant engine
    (`each_tile`); None: all rows at once. proposer: of drafts; None: there are no verify buckets.
    synthetic_acceptance: of drafts; None: the model decides. acceptance: the rule; None: drafts must be the tokens that
    the model draws. adapters: how they lie in the pool; None: there are none.
    """

    model: Settings
    max_logprobs: int
    tiles: RowTiles | None = None
    proposer: Proposer | None = None
    synthetic_acceptance: float | None = None
    acceptance: AcceptanceRule | None = None
    adapters: AdapterLayout | None = None

    @property
    def has_late_drafts(self) -> bool:
        """Whether rows that draw late may have drafts, which are then accepted by what the host makes of them."""
        return self.proposer is not None and self.proposer.drafts_late and self.synthetic_acceptance is None

    @property
    def context(self) -> Context:
        model = self.model
        return Context(
            model.mesh,
            model.attention_backend,
            page_layout=model.page_layout,
            tiles=self.tiles,
            adapters=self.adapters,
        )
