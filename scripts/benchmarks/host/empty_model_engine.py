"""`make_engine`: an engine with a nearly empty model and the texts of a real tokenizer."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from checkpoints.formats.gguf import GgufFile
from checkpoints.sources import resolve
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.build import build
from jaxserve.engine.llm import LLM
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tokenizer_from_folder import tokenizer_from_folder
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}


class Spread(Tokenizer):
    """A vocabulary of `num_ids` tokens spread evenly over that of another tokenizer.

    Sampling from few tokens is fast on a CPU, while their texts are as long as those of the whole vocabulary.
    """

    def __init__(self, whole: Tokenizer, num_ids: int):
        plain = [i for i, raw in enumerate(whole.token_bytes) if raw and i not in whole.special_ids]
        self.vocab_size = num_ids
        self.eos_ids, self.bos_id, self.special_ids = (), None, frozenset()
        raw = [whole.token_bytes[plain[i * len(plain) // num_ids]] for i in range(num_ids)]
        self.__dict__["decoding"] = replace(whole.decoding, raw=raw)


def tokenizer_of(model: str) -> Tokenizer:
    """The tokenizer of a model, which is downloaded if necessary."""
    weights = resolve(model).weights
    if weights.suffix != ".gguf":
        return tokenizer_from_folder(weights if weights.is_dir() else weights.parent)
    file = GgufFile(weights)
    try:
        return tokenizer_from_gguf(file.metadata)
    finally:
        file.close()


def make_engine(tokenizer: Tokenizer, num_rows: int, num_ids: int, max_model_len: int) -> LLM:
    """An engine with `num_rows` slots and enough pages for all of them."""
    page_size = 16
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": num_ids}))
        config = EngineConfig.create(
            folder,
            load_format="dummy",
            dtype="float32",
            max_num_seqs=num_rows,
            max_model_len=max_model_len,
            max_num_batched_tokens=max(2048, num_rows),
            page_size=page_size,
            max_decode_rounds=1,  # the default runs up to 16 rounds per step
            num_pages=2 * num_rows * max_model_len // page_size,
        )
        parts = build(config)
    return LLM.from_parts(config, replace(parts, text=replace(parts.text, tokenizer=Spread(tokenizer, num_ids))))
