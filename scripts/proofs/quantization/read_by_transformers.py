"""Whether transformers reads what `jaxserve quantize` writes: logits of both, with decoded weights in float32."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from scripts.proofs.helpers.draft_configs import SMOLLM
from scripts.proofs.parity import read_goldens
from scripts.proofs.quantization.quantized_models import quantized

SCRIPT = Path(__file__).with_name("transformers_logits.py")
NUM_TEXTS, TEXT_LEN = 4, 100


def largest_error(scheme: str) -> float:
    """Of any logit, over the largest one."""
    from jaxserve.engine.pure_model import load
    from jaxserve.functional.forward_steps import forward, logits

    path, prompts = quantized(scheme), read_goldens(SMOLLM)[0]
    tokens = np.array([token for prompt in prompts for token in prompt][: NUM_TEXTS * TEXT_LEN])
    tokens = tokens.reshape(NUM_TEXTS, TEXT_LEN)
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "tokens.npy", Path(folder) / "logits.npy"
        np.save(given, tokens)
        # The library's messages would end in the row's.
        command = [os.environ["ORACLE_PYTHON"], SCRIPT, path, given, found]
        subprocess.run(command, check=True, stdout=sys.stderr)
        theirs = np.load(found)
    model = load(str(path), dtype="float32", quantization="dense")
    hidden, _ = forward(model.settings, model.params, tokens.astype(np.int32))
    ours = np.asarray(logits(model.settings, model.params, hidden))[..., : theirs.shape[-1]]
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())
