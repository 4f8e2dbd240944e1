"""By how much a process grows at most while `jaxserve quantize` writes SmolLM2."""

import os
import sys
import tempfile
from pathlib import Path

from scripts.proofs.helpers.draft_configs import SMOLLM
from scripts.proofs.helpers.process_memory import anonymous_bytes, peak_growth_bytes
from scripts.proofs.quantization.quantized_models import options_of

EMBEDDING, MODEL = 49_152 * 576, 134_515_008  # values of SmolLM2's largest matrix, and of all
TEXTS = 128 * 256 * 576  # values that a layer makes of the texts of a calibration
SUMS = 1536 * 1536  # of the inputs of a down projection
WITHOUT_TEXTS = 2 * 4 * EMBEDDING + 100 * 10**6  # as docs/models.md says
PROGRAMS = 200 * 10**6
"""The tokenizer, what is compiled, and what a layer computes of 8 texts: GPTQ took 712 and 750 MiB in all, in runs of
2026-11-29."""
# Layers and texts are bfloat16; GPTQ has the factor of the sums, and for its inverse three such matrices, in float64.
GPTQ = WITHOUT_TEXTS + 2 * (MODEL - EMBEDDING) + 2 * TEXTS + 4 * 8 * SUMS + PROGRAMS
MOST_BYTES_OF_WRITING = {
    **dict.fromkeys(("int8", "w8a8", "int4-g64"), WITHOUT_TEXTS),
    "gptq-g64": GPTQ,
    "awq-g64": GPTQ + 4 * 4 * SUMS,  # sums with a scale folded in, and what is made of them to try it, in float32
}
"""By scheme."""


def peak_bytes(scheme: str) -> int:
    """Of anonymous memory, from the start of the command."""
    code = f"import sys; from {__name__} import write_here; write_here(sys.argv[1:])"
    with tempfile.TemporaryDirectory() as folder:
        command = [SMOLLM, str(Path(folder) / "model"), "--scheme", scheme, "--quiet", *options_of(scheme)]
        peak, _ = peak_growth_bytes([sys.executable, "-c", code, *command], XLA_FLAGS="")
    return peak


def write_here(argv: list[str]) -> None:
    """Body of the measured process: prints its memory once JAX is initialized, and quantizes."""
    import jax

    from jaxserve.cli.quantize import run

    jax.devices()
    print(anonymous_bytes(os.getpid()), flush=True)
    run(argv)
