"""What the race detector of Pallas' TPU interpreter finds in all kernels of a call: each begins its own finding."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from jax._src.pallas.mosaic.interpret import interpret_pallas_call  # where the detector leaves its findings


@contextmanager
def race_findings() -> Iterator[list[Any]]:
    """A list that grows by a finding (`.races_found`) with every kernel that begins."""
    findings, make = [], interpret_pallas_call.RaceDetectionState

    def begin(**options: Any) -> Any:
        findings.append(make(**options))
        return findings[-1]

    with patch.object(interpret_pallas_call, "RaceDetectionState", begin):
        yield findings
