"""SmolLM2 with weights of fewer bits, as `jaxserve quantize` writes it, and how well each predicts a held-out text.

The text is Python's own reference, which every Python has (`pydoc_data.topics`): its beginning is predicted, its end
calibrates.
"""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from checkpoints.quantized.forms.form_names import GGUF_NAMES
from scripts.proofs.helpers.draft_equality import SMOLLM
from scripts.proofs.helpers.stored_rows import ROOT, STORE, state_of_sources

PIECE_LEN, NUM_PIECES = 512, 40
CALIBRATION_CHARS = 200_000
"""Of the end: more than the 128 pieces of 256 tokens that `jaxserve quantize` reads."""
CALIBRATED = ("gptq-", "awq-", "nf4")


def quality(scheme: str) -> dict[str, Any]:
    """`Quality`'s fields, in float32, of the model that was written with this scheme. dense: of the model itself."""
    import numpy as np

    from jaxserve.bench.quality.compare_quality import compare_quality
    from jaxserve.engine.pure_model import load
    from jaxserve.functional.cut_text import cut_text

    dense = load(SMOLLM, dtype="float32", quantization="dense")
    assert dense.tokenizer is not None, "the model has one"
    pieces = cut_text(dense.tokenizer.encode(_text()), PIECE_LEN)[:NUM_PIECES]
    assert np.size(pieces) == PIECE_LEN * NUM_PIECES, "the text is long enough"
    other = None if scheme == "dense" else lambda: load(str(quantized(scheme)), dtype="float32")
    (found,) = compare_quality(dense, [(scheme, other)], pieces, lambda line: print(line, file=sys.stderr))
    return asdict(found)


def quantized(scheme: str) -> Path:
    """The folder or GGUF file of the model with this scheme, written now where it is missing."""
    store = STORE / f"quantized-{state_of_sources('quantization')}"
    folder = store / (f"{scheme}.gguf" if scheme in GGUF_NAMES else scheme)
    if folder.suffix and folder.exists():
        return folder
    command = [sys.executable, "-m", "jaxserve.cli.main", "quantize", SMOLLM, str(folder), "--scheme", scheme]
    if scheme.startswith(CALIBRATED):
        calibration = store / "calibration.txt"
        store.mkdir(parents=True, exist_ok=True)
        calibration.write_text(_text()[-CALIBRATION_CHARS:], encoding="utf-8")
        command += ["--calibration", str(calibration)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


def file_bytes(model: str) -> int:
    """Of all tensors of a GGUF file."""
    from gguf import GGUFReader

    from checkpoints.sources import resolve

    return sum(int(tensor.n_bytes) for tensor in GGUFReader(resolve(model).weights).tensors)


def _text() -> str:
    return "\n".join(topics[name] for name in sorted(topics))
