"""EAGLE-3 drafts of the published layouts are read: full-sized files, written here name by name, mostly of holes.

The shapes are those of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B and of the EAGLE-3 drafts of Qwen3-8B.
"""

import json
import math

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from checkpoints.sources import resolve
from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.engine.build.eagle_folder import open_eagle
from jaxserve.models.eagle_layer import declare_eagle

pytestmark = pytest.mark.optimized  # 850 MB are placed on the device

LLAMA = {
    "vocab_size": 128_256,
    "intermediate_size": 14_336,
    "rope_theta": 500_000.0,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
}
QWEN = {
    "vocab_size": 151_936,
    "intermediate_size": 12_288,
    "rope_theta": 1_000_000.0,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "rms_norm_eps": 1e-6,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 17, 32], "use_aux_hidden_state": True},
}
SHARED = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "draft_vocab_size": 32_000,
    "tie_word_embeddings": False,
}
HEAD_DIM, GROUP = 128, 4


def shapes(width: int, vocab_size: int) -> dict[str, tuple[int, ...]]:
    attention, mlp = "midlayer.self_attn.", "midlayer.mlp."
    matrices = {
        "fc.weight": (4096, 3 * 4096),
        "lm_head.weight": (32_000, 4096),
        f"{attention}q_proj.weight": (4096, 2 * 4096),
        f"{attention}k_proj.weight": (1024, 2 * 4096),
        f"{attention}v_proj.weight": (1024, 2 * 4096),
        f"{attention}o_proj.weight": (4096, 4096),
        f"{mlp}gate_proj.weight": (width, 4096),
        f"{mlp}up_proj.weight": (width, 4096),
        f"{mlp}down_proj.weight": (4096, width),
    }
    norms = ("norm", "midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm")
    return matrices | {f"{name}.weight": (4096,) for name in norms} | {"d2t": (32_000,), "t2d": (vocab_size,)}


def write_draft(folder, config) -> dict[str, np.ndarray]:
    """The first row of each tensor; the rows behind those of matrices are holes of the file."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    rng, header, rows, end = np.random.default_rng(0), {}, {}, 0
    for name, shape in shapes(config["intermediate_size"], config["vocab_size"]).items():
        row = rng.normal(size=shape[-1:]).astype(ml_dtypes.bfloat16)
        kind, rows[name] = "BF16", row
        if name == "d2t":
            tokens = np.sort(rng.choice(config["vocab_size"], 32_000, replace=False))
            kind, rows[name] = "I64", (tokens - np.arange(32_000)).astype(np.int64)
        elif name == "t2d":
            kind, rows[name] = "BOOL", np.isin(np.arange(config["vocab_size"]), tokens)
        num_bytes = math.prod(shape) * rows[name].itemsize
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + num_bytes]}
        end += num_bytes
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        start = file.tell()
        for name, row in rows.items():
            file.seek(start + header[name]["data_offsets"][0])
            file.write(row.tobytes())
        file.truncate(start + end)
    return rows


@pytest.mark.parametrize("own", [LLAMA, QWEN], ids=["Llama 3.1 8B", "Qwen3 8B"])
def test_drafts_of_the_published_layouts_are_read(tmp_path, own):
    rows = write_draft(tmp_path / "draft", SHARED | own)
    mesh = make_mesh(1)
    with open_eagle(resolve(str(tmp_path / "draft"))) as source:
        config = source.model
        found = source.params(mesh, declare_eagle(config, 4096, mesh, jnp.dtype(jnp.bfloat16)), seed=0)
    assert config.vocab_size == own["vocab_size"]
    assert config.tap_layers == ((1, 17, 32) if own is QWEN else None)
    (layer,) = found["layers"].values()
    (qkv,), (gate_up,) = layer["qkv"], layer["gate_up"]
    assert qkv.shape == (8, (GROUP + 2) * HEAD_DIM, 2 * 4096)
    read = {
        "fc.weight": found["fuse"],
        "lm_head.weight": found["lm_head"],
        "midlayer.self_attn.q_proj.weight": qkv[0],
        "midlayer.self_attn.k_proj.weight": qkv[0, GROUP * HEAD_DIM :],
        "midlayer.self_attn.v_proj.weight": qkv[0, (GROUP + 1) * HEAD_DIM :],
        "midlayer.self_attn.o_proj.weight": layer["o"][0],
        "midlayer.mlp.gate_proj.weight": gate_up[0],
        "midlayer.mlp.up_proj.weight": gate_up[1],
        "midlayer.mlp.down_proj.weight": layer["down"][0],
        "norm.weight": found["final_norm"],
        "midlayer.hidden_norm.weight": found["hidden_norm"],
        "midlayer.input_layernorm.weight": layer["attn_norm"][0],
        "midlayer.post_attention_layernorm.weight": layer["mlp_norm"][0],
    }
    assert read.keys() == rows.keys() - {"d2t", "t2d"}
    for name, leaf in read.items():
        values = np.asarray(leaf, ml_dtypes.bfloat16).reshape(-1)
        np.testing.assert_array_equal(values[: len(rows[name])], rows[name], err_msg=name)
    tokens = np.asarray(found["tokens"])
    np.testing.assert_array_equal(tokens[:32_000], np.arange(32_000) + rows["d2t"])
    assert rows["t2d"][tokens[:32_000]].all()
