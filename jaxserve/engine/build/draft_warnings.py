"""Wiring: warnings of drafts with which texts are not the model's, or whose context is shorter than the engine's."""

import logging

from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.models.config.eagle_config import EagleConfig
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.runner.drafts.proposers import DraftShape

log = logging.getLogger(__name__)


def warn_of_other_texts(speculation: SpeculativeConfig | None) -> None:
    """speculation: of an engine."""
    if speculation is None:
        return
    if speculation.synthetic_acceptance is not None:
        log.warning("texts are not the model's: synthetic_acceptance is for benches")
    if speculation.acceptance == "typical":
        log.warning("acceptance='typical' is not lossless: at temperatures above 0 texts have not the model's law")


def warn_of_short_context(draft: DraftShape | None, max_model_len: int) -> None:
    """draft: of an engine. Texts are the model's at every length, but a draft is seldom right at positions for which it
    was not trained."""
    layers = draft.model if isinstance(draft, EagleConfig) else draft
    if isinstance(layers, ModelConfig) and layers.max_position < max_model_len:
        log.warning(
            "the draft's context has %s tokens, the engine's %s (max_model_len): few drafts are accepted beyond it",
            layers.max_position,
            max_model_len,
        )
