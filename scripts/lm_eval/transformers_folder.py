"""Writes a GGUF model as a folder that transformers, and so lm-eval, reads. For the oracle's Python alone.

python transformers_folder.py MODEL.gguf FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(gguf: str, folder: str) -> None:
    path = Path(gguf)
    # Dense weights in float32, as jaxserve has them.
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
