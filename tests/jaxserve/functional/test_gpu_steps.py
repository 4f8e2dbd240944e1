"""A step of a model on the GPU's kernels, interpreted: planned once for each kind of layers, and equal to XLA's.

`pure.decode` runs the engine's layers over its page layout; a whole engine would take minutes.
"""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve import pure
from pallas_kernels.paged_attention.mosaic_gpu import backend as mosaic_gpu
from tests.pallas_kernels.paged_attention.mosaic_gpu.tiny_gpu import tiny_gpu
from tests.support.golden_data import checkpoint

LAYERS = ("sliding_attention", "full_attention", "sliding_attention")
LENGTHS = np.array([17, 60])


def test_a_decode_step_is_planned_once_and_equals_xlas(tmp_path, monkeypatch):
    """Two kinds of layers, one with a window that both rows exceed, and a third KV group."""
    changes = {"num_hidden_layers": len(LAYERS), "layer_types": LAYERS}
    config = json.loads((checkpoint("gemma3") / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = pure.load(str(tmp_path), load_format="dummy", dtype="bfloat16", page_size=16)
    on_xla, on_gpu = (replace(model.settings, attention_backend=name) for name in ("xla", "mosaic_gpu"))
    windows = [kind.attention.window for kind in model.config.kinds]
    assert min(LENGTHS) > min(filter(None, windows))
    assert model.config.kv_groups(16).num_groups > len(windows)
    tokens = np.random.default_rng(0).integers(model.config.vocab_size, size=(2, max(LENGTHS)))
    prefill = jax.jit(partial(pure.prefill, on_xla))
    z, cache = prefill(model.params, jnp.asarray(tokens), jnp.asarray(LENGTHS), pure.init_cache(on_xla, 2, 80))
    decode = jax.jit(partial(pure.decode, on_xla))
    expected, expected_cache = decode(model.params, z.argmax(-1), cache)

    planned, attended = [], []
    plan, attend_items = mosaic_gpu.plan, mosaic_gpu.attend_items

    def counted_plan(meta: Any, spec: Any, model: Any) -> Any:
        planned.append(spec.window)
        return plan(meta, spec, model)

    def counted_attend_items(*args: Any, **options: Any) -> Any:
        attended.append(options["spec"].window)
        return attend_items(*args, **options)

    monkeypatch.setattr(mosaic_gpu, "plan", counted_plan)
    monkeypatch.setattr(mosaic_gpu, "attend_items", counted_attend_items)
    with tiny_gpu():
        got, got_cache = jax.jit(partial(pure.decode, on_gpu))(model.params, z.argmax(-1), cache)
    assert planned == windows
    assert attended == windows, "the layers' scan has each kind's kernel once"

    # A few roundings to 8 bits a layer; without the last page's positions the logits differ.
    def deviation(logits: jax.Array) -> float:
        return float(np.abs(logits - expected).max() / np.abs(expected).max())

    assert deviation(got) < 0.02
    assert deviation(decode(model.params, z.argmax(-1), replace(cache, lengths=cache.lengths - 16))[0]) > 0.2
    before, after, xlas = (np.asarray(x.pool[:, 1:], np.float32) for x in (cache, got_cache, expected_cache))
    written = (after != before).any(-1)
    assert written.any()
    np.testing.assert_array_equal(written, (xlas != before).any(-1))
