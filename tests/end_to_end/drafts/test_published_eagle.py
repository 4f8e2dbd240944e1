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
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.model_settings import Settings
from jaxserve.runner.drafts.eagle import Eagle

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


def places(num_rows: int) -> tuple[int, int, int]:
    """Rows of a matrix that are written: the others are holes of the file."""
    return 0, num_rows // 2, num_rows - 1


def write_draft(folder, config) -> dict[str, np.ndarray]:
    """The vectors, and of each matrix the rows at its `places`."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    rng, header, rows, end = np.random.default_rng(0), {}, {}, 0
    for name, shape in shapes(config["intermediate_size"], config["vocab_size"]).items():
        kept = shape if len(shape) == 1 else (len(places(shape[0])), shape[1])
        kind, rows[name] = "BF16", rng.normal(size=kept).astype(ml_dtypes.bfloat16)
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
        for name, values in rows.items():
            first, numbers = start + header[name]["data_offsets"][0], places(header[name]["shape"][0])
            for number, row in zip(numbers, values, strict=True) if values.ndim == 2 else [(0, values)]:
                file.seek(first + number * row.nbytes)
                file.write(row.tobytes())
        file.truncate(start + end)
    return rows


@pytest.mark.thinned(1)
@pytest.mark.parametrize("own", [LLAMA, QWEN], ids=["Llama 3.1 8B", "Qwen3 8B"])
def test_drafts_of_the_published_layouts_are_read(tmp_path, own):
    rows = write_draft(tmp_path / "draft", SHARED | own)
    mesh = make_mesh(1)
    with open_eagle(resolve(str(tmp_path / "draft"))) as source:
        config = source.model
        found = source.params(mesh, declare_eagle(config, 4096, mesh, jnp.dtype(jnp.bfloat16)), seed=0)
    assert config.vocab_size == own["vocab_size"]
    target = Settings(SHAPES["qwen3-8b" if own is QWEN else "llama-3.1-8b"], mesh, jnp.dtype(jnp.bfloat16), 16)
    assert Eagle.of(target, config).tap_layers == ((2, 18, 33) if own is QWEN else (2, 16, 29))
    (layer,) = found["layers"].values()
    qkv, gate_up = np.asarray(layer["qkv"][0]), layer["gate_up"][0]
    assert qkv.shape == (8, (GROUP + 2) * HEAD_DIM, 2 * 4096)
    q, k, v = np.split(qkv, [GROUP * HEAD_DIM, (GROUP + 1) * HEAD_DIM], axis=1)
    read = {
        "fc.weight": found["fuse"],
        "lm_head.weight": found["lm_head"],
        "midlayer.self_attn.q_proj.weight": q,
        "midlayer.self_attn.k_proj.weight": k,
        "midlayer.self_attn.v_proj.weight": v,
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
    expected = shapes(own["intermediate_size"], own["vocab_size"])
    for name, leaf in read.items():
        values = np.asarray(leaf)
        if rows[name].ndim == 2:
            values = values.reshape(-1, values.shape[-1])[list(places(expected[name][0]))]
        np.testing.assert_array_equal(values, rows[name], err_msg=name)
    tokens = np.asarray(found["tokens"])
    np.testing.assert_array_equal(tokens[:32_000], np.arange(32_000) + rows["d2t"])
    assert rows["t2d"][tokens[:32_000]].all()
