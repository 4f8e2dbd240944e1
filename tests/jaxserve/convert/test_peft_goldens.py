"""Adapters that PEFT wrote are what PEFT makes of them: the products of each module, and the model's logits."""

from functools import partial
from itertools import accumulate, pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.adapters.adapter_modules import PARTS
from checkpoints.adapters.read_adapter import read_adapter
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from jaxserve import pure
from jaxserve.cli.main import main
from jaxserve.engine.build.adapter_reading import matrix_shapes
from jaxserve.runner.load_weights import read_config
from tests.support.golden_data import FOLDER, checkpoint, goldens

ADAPTERS = FOLDER / "adapters"
NAMES = sorted(path.name for path in ADAPTERS.iterdir())


def arrays_of(name):
    with np.load(ADAPTERS / name / "goldens.npz") as arrays:
        return dict(arrays)


def read(name):
    with open_checkpoint(resolve(str(checkpoint(name.partition("-")[0])))) as opened:
        model = read_config(opened)
    return read_adapter(str(ADAPTERS / name), matrix_shapes(model), model.num_layers, 16)


def probe(size):
    return np.random.default_rng(17).standard_normal(size).astype(np.float32)


def outputs(adapter, module):
    layer, parts = int(module.split(".")[2]), PARTS[".".join(module.split(".")[3:])]
    pairs = [adapter.matrices[layer, part] for part in parts]
    return np.concatenate([pair.b @ (pair.a @ probe(pair.a.shape[1])) for pair in pairs])


@pytest.mark.parametrize("name", NAMES)
def test_each_module_adds_what_peft_adds(name):
    adapter, expected = read(name), arrays_of(name)
    found = [outputs(adapter, module) for module in expected["modules"]]
    assert sum(len(PARTS[".".join(module.split(".")[3:])]) for module in expected["modules"]) == len(adapter.matrices)
    ends = list(accumulate(map(len, found), initial=0))
    assert ends[-1] == len(expected["outputs"])
    for module, (start, stop), values in zip(expected["modules"], pairwise(ends), found, strict=True):
        wanted = expected["outputs"][start:stop]
        assert np.abs(wanted).max() > 5e-3
        np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-6, err_msg=module)


def logits(settings, params, tokens):
    return pure.logits(settings, params, pure.forward(settings, params, tokens)[0])[0]


@pytest.mark.parametrize("name", ["llama3-patterns", "phi3-all-linear"])
def test_a_merged_model_has_the_logits_of_peft(name, tmp_path):
    base = checkpoint(name.partition("-")[0])
    command = ["merge-lora", str(base), str(ADAPTERS / name), "--output", str(tmp_path / "out"), "--quiet"]
    assert main([*command, "--dtype", "float32"]) == 0
    expected, golden = arrays_of(name)["logits"], goldens(base.name)[1]
    model = pure.load(str(tmp_path / "out"), dtype="float32")
    found = jax.jit(partial(logits, model.settings))(model.params, jnp.asarray([golden.prompt], jnp.int32))
    found = np.asarray(found)[-len(expected) :]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    assert np.abs(golden.logits[-len(expected) :] - expected).max() > 1
