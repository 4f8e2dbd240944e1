"""Makes the tiny random checkpoints of each family and their golden logits, with transformers and torch.

Run in an environment with requirements/oracle.txt:  python scripts/goldens/models.py
Writes tests/goldens/<name>/: config.json, model.safetensors, goldens.npz (prompts, logits, greedy tokens).
"""

from pathlib import Path

import numpy as np
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

OUT = Path(__file__).parents[2] / "tests" / "goldens"
PROMPT_LENS = (1, 17, 60)
GREEDY_TOKENS = 24
VOCAB = 320
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
COMMON = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=80, head_dim=16, max_position_embeddings=256)
MODELS = {
    "llama2": (
        LlamaForCausalLM,
        LlamaConfig(
            **COMMON, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False
        ),
    ),
    "llama3": (
        LlamaForCausalLM,
        LlamaConfig(
            **COMMON,
            num_hidden_layers=3,
            num_attention_heads=8,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters=LLAMA3_ROPE,
        ),
    ),
    # Seven local layers and two global ones: KV groups of two layers, the last of them half empty.
    "gemma3": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            **COMMON,
            num_hidden_layers=9,
            num_attention_heads=4,
            num_key_value_heads=1,
            sliding_window=16,
            query_pre_attn_scalar=16,
            layer_types=["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(9)],
        ),
    ),
}


def main() -> None:
    for name, (cls, config) in MODELS.items():
        torch.manual_seed(7)
        model = cls(config).eval().float()
        with torch.no_grad():
            for parameter in model.parameters():  # larger than the default 0.02, so that attention is not uniform
                parameter.normal_(0.0, 0.15) if parameter.ndim > 1 else parameter.normal_(0.5, 0.3)
        folder = OUT / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        rng = np.random.default_rng(3)
        arrays = {}
        for length in PROMPT_LENS:
            prompt = rng.integers(3, VOCAB, length)
            ids = torch.tensor(prompt)[None]
            with torch.no_grad():
                arrays[f"logits{length}"] = model(ids).logits[0].numpy()
                for _ in range(GREEDY_TOKENS):
                    ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
            arrays[f"prompt{length}"] = prompt.astype(np.int32)
            arrays[f"greedy{length}"] = ids[0, length:].numpy().astype(np.int32)
        np.savez_compressed(folder / "goldens.npz", **arrays)
        print(name, sum(p.numel() for p in model.parameters()), {k: v.shape for k, v in arrays.items()})


if __name__ == "__main__":
    main()
