"""A model that GPTQ has quantized is nearer to the original than a rounded one, on texts like those it was shown."""

import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.sources import resolve
from jaxserve import pure
from jaxserve.convert.convert_model import ConversionTarget, convert
from jaxserve.convert.layer_sums import LayerSums
from jaxserve.functional.layer_inputs import PRODUCTS
from tests.jaxserve.convert.test_quantize import decoded, model

TEXTS = np.random.default_rng(0).integers(3, 90, (16, 24)).astype(np.int32)


def ignore(done, total):
    pass


def hessians_of(model, texts=TEXTS):
    return LayerSums(lambda: model, texts, PRODUCTS)


def quantized(source, folder, scheme, hessians=None, max_shard_bytes=10**9):
    target = ConversionTarget(folder, "safetensors", "float32", max_shard_bytes, scheme=scheme)
    convert(resolve(str(source)), target, ignore, sums=hessians)
    return folder


def test_less_is_lost_than_by_rounding(tmp_path):
    tensors = model(tmp_path / "model")
    original = pure.load(str(tmp_path / "model"), dtype="float32")
    folders = {
        "int4-g64": quantized(tmp_path / "model", tmp_path / "rounded", "int4-g64"),
        "gptq-g64": quantized(tmp_path / "model", tmp_path / "gptq", "gptq-g64", hessians_of(original)),
    }
    hessians, lost = hessians_of(original), dict[str, list[float]]()
    values = {scheme: decoded(folder) for scheme, folder in folders.items()}
    for layer in range(3):
        part = f"layer-{layer:05}"
        for name, leaf in (("mlp.down_proj", "down"), ("self_attn.o_proj", "o"), ("mlp.up_proj", "gate_up")):
            key = f"model.layers.{layer}.{name}.weight"
            of_inputs = hessians.of(type("Part", (), {"name": part}), leaf)
            for scheme, found in values.items():
                error = found[key] - tensors[key]
                lost.setdefault(scheme, []).append(float(np.einsum("oi,ij,oj->", error, of_inputs, error)))
    assert (np.array(lost["gptq-g64"]) < 0.9 * np.array(lost["int4-g64"])).all()


def test_a_run_goes_on_to_the_same_files(tmp_path):
    model(tmp_path / "model")
    original = pure.load(str(tmp_path / "model"), dtype="float32")
    out = quantized(tmp_path / "model", tmp_path / "out", "gptq-g32", hessians_of(original), 100_000)
    shards = sorted(out.glob("*.safetensors"))
    assert len(shards) > 2
    written = shards[-1].read_bytes()
    shards[-1].unlink()
    quantized(tmp_path / "model", out, "gptq-g32", hessians_of(original), 100_000)
    assert shards[-1].read_bytes() == written
    with pytest.raises(CheckpointError, match=r"different conversion \(different calibration\)"):
        quantized(tmp_path / "model", out, "gptq-g32", hessians_of(original, TEXTS[1:]), 100_000)


def test_layers_are_asked_for_in_order(tmp_path):
    model(tmp_path / "model")
    hessians = hessians_of(pure.load(str(tmp_path / "model"), dtype="float32"))
    parts = [type("Part", (), {"name": f"layer-{layer:05}"}) for layer in range(3)]
    assert hessians.of(parts[1], "down").shape == (256, 256)
    hessians.of(parts[1], "o")
    with pytest.raises(ValueError, match="layer 0 is asked for after layer 1"):
        hessians.of(parts[0], "o")
