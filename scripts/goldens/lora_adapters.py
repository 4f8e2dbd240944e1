"""Makes small LoRA adapters of the tiny checkpoints of `models.py`, written by PEFT, and what they do there.

Run in an environment with requirements/oracle.txt, at the root:  python scripts/goldens/lora_adapters.py
Writes tests/goldens/adapters/<name>/: adapter_config.json, adapter_model.safetensors, goldens.npz. That has the logits
after the last tokens of the prompt of 17, the names of the adapted modules, and what PEFT's delta weights of one after
the other make of `probe`.
"""

import os
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

GOLDENS = Path(__file__).parents[2] / "tests" / "goldens"
NUM_LOGITS = 4
CASES = {
    "llama3-plain": (
        "llama3",
        torch.float32,
        dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    ),
    "llama3-patterns": (
        "llama3",
        torch.float32,
        dict(
            r=4,
            lora_alpha=2,
            use_rslora=True,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            exclude_modules=["layers.2.mlp.up_proj"],
            rank_pattern={"layers.0.self_attn.q_proj": 9, r"(k|v)_proj": 1, "^model.layers.1.mlp.down_proj": 6},
            alpha_pattern={r".*layers\.[01]\.mlp\.(gate|up)_proj": 3, "self_attn.q_proj": 5, "v_proj": 0.5},
        ),
    ),
    "gemma3-all-linear": ("gemma3", torch.bfloat16, dict(r=2, lora_alpha=3, target_modules="all-linear")),
    "phi3-all-linear": ("phi3", torch.float32, dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "qwen2-layers": (
        "qwen2",
        torch.float16,
        dict(
            r=4,
            lora_alpha=4,
            target_modules=["k_proj", "o_proj", "down_proj"],
            layers_to_transform=[1, 3],
            layers_pattern="layers",
            init_lora_weights="gaussian",
        ),
    ),
    "mistral-expression": (
        "mistral",
        torch.float32,
        dict(r=3, lora_alpha=6, target_modules=r".*\.layers\.[02]\.(self_attn\.(q|v)|mlp\.down)_proj"),
    ),
}


def probe(size: int) -> np.ndarray:
    return np.random.default_rng(17).standard_normal(size).astype(np.float32)


@torch.no_grad()
def main() -> None:
    os.chdir(GOLDENS.parents[1])
    for name, (family, dtype, options) in CASES.items():
        torch.manual_seed(11)
        base = AutoModelForCausalLM.from_pretrained(f"tests/goldens/{family}", dtype=torch.float32).eval()
        model = get_peft_model(base, LoraConfig(**options)).eval()
        for key, parameter in model.named_parameters():
            if "lora_" in key:  # rounded first, so that the file has what is computed with
                parameter.copy_((0.3 * torch.randn_like(parameter)).to(dtype))
        prompt = np.load(GOLDENS / family / "goldens.npz")["prompt17"]
        ids = torch.tensor(prompt.astype(np.int64))[None]
        # Beyond 32 tokens Phi-3 has its long context's rotation, as goldens of `models.py` have it.
        padded = torch.nn.functional.pad(ids, (0, 40 - ids.shape[1])) if family == "phi3" else ids
        arrays = {"logits": model(padded).logits[0, len(prompt) - NUM_LOGITS : len(prompt)].numpy()}
        deltas = {
            key: module.get_delta_weight("default").numpy()
            for key, module in model.base_model.model.named_modules()
            if "default" in getattr(module, "lora_A", {})
        }
        arrays["modules"] = np.array(list(deltas))
        arrays["outputs"] = np.concatenate([delta @ probe(delta.shape[1]) for delta in deltas.values()])
        folder = GOLDENS / "adapters" / name
        model.to(dtype).save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        np.savez_compressed(folder / "goldens.npz", **arrays)
        print(name, len(deltas), "modules", sum(path.stat().st_size for path in folder.iterdir()), "bytes")


if __name__ == "__main__":
    main()
