"""Findings of the race detectors of Pallas' interpreters, one for each kernel of a call."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks

# Where the detectors leave their findings.
ON_TPU = (interpret_pallas_call, "RaceDetectionState")
ON_GPU = (gpu_callbacks, "GPURaceDetectionState")


@contextmanager
def race_findings(detector: tuple[Any, str] = ON_TPU) -> Iterator[list[Any]]:
    """A list that grows by a finding (`.races_found`) with every kernel that begins."""
    findings, make = [], getattr(*detector)

    def begin(**options: Any) -> Any:
        findings.append(make(**options))
        return findings[-1]

    with patch.object(*detector, begin):
        yield findings
