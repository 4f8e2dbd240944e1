"""Wiring: what of a model's weights stays packed and what is decoded, in words: `packing_text`, and `log_packing`."""

import logging

from checkpoints.mapping.never_packed import NO_FORM
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.models.packing import Packing

log = logging.getLogger(__name__)


def packing_text(packing: Packing) -> str:
    """Such as "with Q4_1 weights and others decoded from Q4_K (o: why)"; empty where there is nothing to say."""
    if not packing.decoded:
        return f"with {packing.name} weights" if packing.name else ""
    kept = f"with {packing.name} weights and others" if packing.name else "with weights"
    reasons = "; ".join(f"{where}: {reason}" for where, reason in packing.reasons)
    return f"{kept} decoded from {packing.decoded}" + (f" ({reasons})" if reasons else "")


def log_packing(config: EngineConfig, packing: Packing) -> None:
    """One line; a warning where "packed" was asked for and not all stays so, or where a type has no packed form."""
    text = packing_text(packing)
    has_lost = config.quantization == "packed" and bool(packing.decoded)
    is_warning = has_lost or any(reason == NO_FORM for _, reason in packing.reasons)
    if text:
        log.log(logging.WARNING if is_warning else logging.INFO, "%s is loaded %s", config.model, text)
