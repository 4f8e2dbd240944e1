"""Converts a GGUF model to a folder in the format of transformers, for lm-eval; runs in the oracle's environment.

python transformers_folder.py MODEL.gguf FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(gguf: str, folder: str) -> None:
    path = Path(gguf)
    # Dense float32 weights, as in jaxserve.
    model = AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
