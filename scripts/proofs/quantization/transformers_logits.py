"""Logits of a quantized model in transformers, its weights decoded by the library that defines their format.

Runs in the oracle's environment: python transformers_logits.py MODEL TOKENS.npy LOGITS.npy
"""

import sys
from pathlib import Path

import bitsandbytes as bnb
import numpy as np
import torch
from compressed_tensors.quantization import disable_quantization
from transformers import AutoModelForCausalLM


def main(model: str, tokens: str, out: str) -> None:
    path = Path(model)
    folder, file = (path.parent, path.name) if path.suffix == ".gguf" else (path, None)
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    for parameter in loaded.parameters():  # with bitsandbytes' weights the others have the type of the file
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    for module in loaded.modules():
        if isinstance(module, bnb.nn.Linear4bit):
            decode(module)
    ids = torch.from_numpy(np.load(tokens))
    with torch.no_grad():
        loaded(ids[:1, :1])  # compressed-tensors decodes weights in a first pass
        loaded.apply(disable_quantization)  # of activations
        np.save(out, loaded(ids).logits.numpy())


def decode(module: bnb.nn.Linear4bit) -> None:
    """Gives it a forward pass in float32; its own rounds to bfloat16."""
    module.weight.quant_state.dtype = torch.float32
    weight = bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
    module.forward = lambda x: torch.nn.functional.linear(x, weight)


if __name__ == "__main__":
    main(*sys.argv[1:])
