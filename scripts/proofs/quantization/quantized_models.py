"""SmolLM2 with weights of fewer bits, as `jaxserve quantize` writes it, and how well each predicts a held-out text.

The text is Python's own reference, which every Python has (`pydoc_data.topics`): its beginning is predicted, its end
calibrates.
"""

import gc
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from checkpoints.quantized.forms.form_names import GGUF_NAMES
from checkpoints.sources import resolve
from scripts.proofs.helpers.draft_configs import SMOLLM
from scripts.proofs.helpers.process_memory import anonymous_bytes
from scripts.proofs.helpers.stored_rows import ROOT, STORE, state_of_sources
from scripts.proofs.quantization.block_mixtures import MIXTURES, write_mixture

PIECE_LEN, NUM_PIECES = 512, 40
CALIBRATION_CHARS = 200_000
"""Of the end: more than the 128 pieces of 256 tokens that `jaxserve quantize` reads."""
CALIBRATED = ("gptq-", "awq-", "nf4")
SMOOTHED, NEAREST, OUTLIERS = ", smoothed", ", nearest codes", ", outliers"
"""After the name of a scheme: calibrated with a text that it does not need; without the text that it has otherwise;
with columns that are not coded."""
NUM_OUTLIERS = 16
NUM_VALUES = 134_515_008


def quality(name: str) -> dict[str, Any]:
    """`Quality`'s fields, in float32, of the model that was written with this scheme, and the bytes of its files; for
    the model itself, "dense", those of bfloat16."""
    import numpy as np

    from jaxserve.bench.quality.compare_quality import compare_quality
    from jaxserve.engine.pure_model import load
    from jaxserve.functional.cut_text import cut_text

    dense = load(SMOLLM, dtype="float32", quantization="dense")
    assert dense.tokenizer is not None, "the model has one"
    pieces = cut_text(dense.tokenizer.encode(_text()), PIECE_LEN)[:NUM_PIECES]
    assert np.size(pieces) == PIECE_LEN * NUM_PIECES, "the text is long enough"
    other = None if name == "dense" else lambda: load(str(quantized(name)), dtype="float32")
    (found,) = compare_quality(dense, [(name, other)], pieces, lambda line: print(line, file=sys.stderr))
    return asdict(found) | {"file_bytes": 2 * NUM_VALUES if other is None else _file_bytes(quantized(name))}


def _file_bytes(path: Path) -> int:
    files = path.glob("*.safetensors") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def quantized(name: str) -> Path:
    """The folder or GGUF file of the model with this scheme, written now where it is missing."""
    store, scheme = STORE / f"quantized-{state_of_sources('quantization')}", name.partition(",")[0]
    in_one_file = scheme in MIXTURES or scheme in GGUF_NAMES
    folder = store / (f"{scheme}.gguf" if in_one_file else name.replace(", ", "-").replace(" ", "-"))
    if in_one_file and folder.exists():
        return folder
    if scheme in MIXTURES:
        write_mixture(scheme, resolve(SMOLLM).weights, quantized("q8_0"), folder)
        return folder
    command = [sys.executable, "-m", "jaxserve.cli.main", "quantize", SMOLLM, str(folder), "--scheme", scheme]
    subprocess.run([*command, *options_of(name)], cwd=ROOT, check=True)
    return folder


def options_of(name: str) -> list[str]:
    """Of the command that writes the model with this scheme: the text that calibrates it."""
    may_be = name.startswith(CALIBRATED) and not name.endswith(NEAREST)
    is_calibrated = may_be or name.endswith((SMOOTHED, OUTLIERS))
    if not is_calibrated:
        return []
    STORE.mkdir(parents=True, exist_ok=True)
    calibration = STORE / "calibration.txt"
    calibration.write_text(_text()[-CALIBRATION_CHARS:], encoding="utf-8")
    return ["--calibration", str(calibration), *(["--outliers", str(NUM_OUTLIERS)] if name.endswith(OUTLIERS) else [])]


def grown_bytes(quantization: str) -> int:
    """By how much a process's anonymous memory has grown once it has read the model, in bfloat16 where it is dense."""
    import jax

    from jaxserve.engine.pure_model import load

    jax.devices()
    before = anonymous_bytes(os.getpid())
    model = load(SMOLLM, dtype="bfloat16", quantization=quantization)
    gc.collect()
    grown = anonymous_bytes(os.getpid()) - before
    del model
    return grown


def _text() -> str:
    return "\n".join(topics[name] for name in sorted(topics))
