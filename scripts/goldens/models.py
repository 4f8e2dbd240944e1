"""Makes a tiny random checkpoint per family and its golden logits, with transformers and torch.

Run in an environment with requirements/oracle.txt, at the root:  PYTHONPATH=. python scripts/goldens/models.py [NAME …]
Writes tests/goldens/<name>/: config.json, model.safetensors, goldens.npz (prompts, logits, greedy tokens). Asserts that
transformers gives the same logits from the GGUF file that the tests make of the checkpoint, and with the config.json
that jaxserve writes from its own model configuration.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf

from jaxserve.models.families import registry
from tests.support.gguf_checkpoints import ARCHITECTURES, write_gguf

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
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.6],
    "long_factor": [1.2, 2.5, 5.0, 8.0],
}
# transformers uses LongRoPE's second table for sequences of more than 32 tokens. Prompts are padded at the end, which
# causal attention cannot see, so that all logits come from the second table.
MIN_LENS = {"phi3": 40}
COMMON = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=80, head_dim=16, max_position_embeddings=256)
SMALL = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
MODELS: dict[str, tuple[Any, Any]] = {
    "llama2": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(
            **COMMON, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False
        ),
    ),
    "llama3": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(
            **COMMON,
            num_hidden_layers=3,
            num_attention_heads=8,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters=LLAMA3_ROPE,
        ),
    ),
    # Seven local and two global layers: KV groups of two layers, the last one half empty.
    "gemma3": (
        hf.Gemma3ForCausalLM,
        hf.Gemma3TextConfig(
            **COMMON,
            num_hidden_layers=9,
            num_attention_heads=4,
            num_key_value_heads=1,
            sliding_window=16,
            query_pre_attn_scalar=16,
            layer_types=["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(9)],
        ),
    ),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig(**SMALL, sliding_window=20)),
    # The last two of four layers have a window that the prompt of 60 tokens exceeds.
    "qwen2": (
        hf.Qwen2ForCausalLM,
        hf.Qwen2Config(
            **SMALL | {"num_hidden_layers": 4},
            use_sliding_window=True,
            sliding_window=20,
            max_window_layers=2,
        ),
    ),
    "qwen3": (
        hf.Qwen3ForCausalLM,
        hf.Qwen3Config(
            **SMALL | {"max_position_embeddings": 128}, head_dim=16, tie_word_embeddings=True, rope_parameters=YARN
        ),
    ),
    # Soft caps low enough to affect most scores and logits; three local and two global layers.
    "gemma2": (
        hf.Gemma2ForCausalLM,
        hf.Gemma2Config(
            **SMALL | {"num_hidden_layers": 5},
            head_dim=8,
            query_pre_attn_scalar=8,
            sliding_window=16,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=5.0,
        ),
    ),
    "phi3": (
        hf.Phi3ForCausalLM,
        hf.Phi3Config(**SMALL, sliding_window=50, original_max_position_embeddings=32, rope_parameters=LONGROPE),
    ),
    "phi4": (
        hf.Phi3ForCausalLM,
        hf.Phi3Config(
            **SMALL,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75},
        ),
    ),
}


def main() -> None:
    for name in sys.argv[1:] or MODELS:
        cls, config = MODELS[name]
        config._attn_implementation = "eager"  # the other implementations ignore soft caps
        torch.manual_seed(7)
        model = cls(config).eval().float()
        with torch.no_grad():
            for key, parameter in model.named_parameters():  # larger than the default, for non-uniform attention
                spread = (0.0, 0.15) if parameter.ndim > 1 or key.endswith("bias") else (0.5, 0.3)
                parameter.normal_(*spread)
        folder = OUT / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        rng = np.random.default_rng(3)
        arrays = {}
        for length in PROMPT_LENS:
            prompt = rng.integers(3, VOCAB, length)
            ids = torch.tensor(prompt)[None]
            arrays[f"logits{length}"] = logits(model, ids, MIN_LENS.get(name, 0))
            for _ in range(GREEDY_TOKENS):
                last = logits(model, ids, MIN_LENS.get(name, 0))[-1].argmax()
                ids = torch.cat([ids, torch.tensor([[last]])], dim=1)
            arrays[f"prompt{length}"] = prompt.astype(np.int32)
            arrays[f"greedy{length}"] = ids[0, length:].numpy().astype(np.int32)
        if name in MIN_LENS:
            arrays["short17"] = logits(model, torch.tensor(arrays["prompt17"])[None].long())
        np.savez_compressed(folder / "goldens.npz", **arrays)
        check_other_spellings(folder, arrays, MIN_LENS.get(name, 0))
        print(name, sum(p.numel() for p in model.parameters()), {k: v.shape for k, v in arrays.items()})


def logits(model: Any, ids: torch.Tensor, min_len: int = 0) -> np.ndarray:
    """Logits after each token; a sequence shorter than `min_len` is padded with tokens 0 at the end."""
    padded = torch.nn.functional.pad(ids, (0, max(0, min_len - ids.shape[1])))
    with torch.no_grad():
        return model(padded).logits[0, : ids.shape[1]].numpy()


def check_other_spellings(folder: Path, arrays: dict[str, np.ndarray], min_len: int) -> None:
    """Checks transformers' logits from the tests' GGUF file, and with jaxserve's config.json and the same weights."""
    config = json.loads((folder / "config.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        if config["model_type"] in ARCHITECTURES:
            write_gguf(folder, Path(scratch) / "model.gguf")
            # transformers' GGUF reader ignores windows, caps and rope scaling, so the configuration is passed: the
            # check covers names and row order. It does not support Mistral, which equals Llama within its window.
            known = hf.AutoConfig.from_pretrained(folder)
            if config["model_type"] == "mistral":
                known = hf.LlamaConfig.from_dict(config | {"model_type": "llama"})
            read = hf.AutoModelForCausalLM.from_pretrained(
                scratch, gguf_file="model.gguf", config=known, attn_implementation="eager", dtype=torch.float32
            )
            compare(read, arrays, 17 if config["model_type"] == "mistral" else 60, min_len)
        (Path(scratch) / "config.json").write_text(json.dumps(registry.to_hf(registry.from_hf(config))))
        shutil.copy(folder / "model.safetensors", scratch)
        read = hf.AutoModelForCausalLM.from_pretrained(scratch, attn_implementation="eager", dtype=torch.float32)
        compare(read, arrays, 60, min_len)


def compare(model: Any, arrays: dict[str, np.ndarray], length: int, min_len: int) -> None:
    ids = torch.tensor(arrays[f"prompt{length}"])[None].long()
    np.testing.assert_allclose(logits(model, ids, min_len), arrays[f"logits{length}"], atol=2e-5)


if __name__ == "__main__":
    main()
