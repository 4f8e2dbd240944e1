"""Ways to draft for SmolLM2, as options of an engine. Medusa heads and the EAGLE-3 draft are those that `scripts/prove
proposers` trains and keeps in .cache/proofs. A draft model with other laws and the same vocabulary is SmolLM2 in 4
bits; a smaller one has SmolLM2's first layers."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripts.proofs.helpers.stored_rows import ROOT, STORE

SMOLLM = "smollm2-135m-instruct"
NGRAMS = {"method": "ngram", "num_speculative_tokens": 4}
NGRAM_TREES = {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_min": 1, "prompt_lookup_branches": 3}
SUFFIXES = {"method": "suffix", "num_speculative_tokens": 8}
ITSELF = {"method": "draft_model", "model": SMOLLM, "num_speculative_tokens": 4}
COPY = STORE / "smollm2-q4_0.gguf"
IN_FOUR_BITS = ITSELF | {"model": str(COPY)}
SMALLER, NUM_FIRST = STORE / "smollm2-first-three", 3  # a tenth of the layers
SMALLER_MODEL = ITSELF | {"model": str(SMALLER)}
FEWER_LAYERS = {"method": "layer_skip", "skip_layers": (12, 18), "num_speculative_tokens": 4}
FIRST_LAYERS = FEWER_LAYERS | {"skip_layers": tuple(range(24, 30))}
MEDUSA = {"method": "medusa", "model": str(STORE / "medusa"), "num_speculative_tokens": 8}
EAGLE = {"method": "eagle3", "model": str(STORE / "eagle3"), "num_speculative_tokens": 4}
EAGLE_TREES = EAGLE | {"num_speculative_tokens": 8, "eagle_topk": 3}
NGRAMS_AND_EAGLE = EAGLE | {"method": "auto", "learned": "eagle3"}
CONFIGS = {
    "n-grams": NGRAMS,
    "trees of three branches": NGRAM_TREES,
    "suffixes, in earlier outputs too": SUFFIXES,
    "the model drafts for itself": ITSELF,
    "a copy in four bits drafts": IN_FOUR_BITS,
    "without two layers": FEWER_LAYERS,
    "Medusa heads": MEDUSA,
    "EAGLE-3, chains": EAGLE,
    "EAGLE-3, trees": EAGLE_TREES,
    "n-grams and EAGLE-3, in turns": NGRAMS_AND_EAGLE,
}


def ready(config: dict[str, Any]) -> dict[str, Any]:
    """The same, after writing the draft model if it is one that is made of SmolLM2."""
    if config.get("model") == str(SMALLER) and not SMALLER.exists():
        _write_first_layers(SMALLER, NUM_FIRST)
    if config.get("model") == str(COPY) and not COPY.exists():
        command = [sys.executable, "-m", "jaxserve.cli.main", "quantize", SMOLLM, str(COPY), "--scheme", "q4_0"]
        subprocess.run(command, cwd=ROOT, check=True)
    return config


def _write_first_layers(folder: Path, num_layers: int) -> None:
    """SmolLM2 without its other layers."""
    from safetensors.numpy import load_file, save_file

    with TemporaryDirectory(dir=STORE) as scratch:
        whole = Path(scratch) / "whole"
        command = [sys.executable, "-m", "jaxserve.cli.main", "convert", SMOLLM, str(whole), "--dtype", "float32"]
        subprocess.run(command, cwd=ROOT, check=True)
        config = json.loads((whole / "config.json").read_text())
        left_out = tuple(f"model.layers.{layer}." for layer in range(num_layers, config["num_hidden_layers"]))
        tensors = load_file(whole / "model.safetensors")
        save_file({n: t for n, t in tensors.items() if not n.startswith(left_out)}, whole / "model.safetensors")
        (whole / "config.json").write_text(json.dumps(config | {"num_hidden_layers": num_layers}))
        whole.rename(folder)
