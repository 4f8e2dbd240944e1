"""A short training lowers the loss, and what is written adds to the model what was trained."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.adapters.read_adapter import read_adapter
from checkpoints.adapters.write_adapter import write_adapter
from jaxserve import pure
from jaxserve.cli.main import main
from jaxserve.core.errors import ConfigError
from jaxserve.engine.build.adapter_reading import matrix_shapes
from scripts.lora.lora_tree import PARTS, draw, exported, merged
from scripts.lora.train_lora import learned, train_lora
from tests.support.golden_data import checkpoint

pytestmark = pytest.mark.usefixtures("as_optax_adds")

ALL = [part for parts in PARTS.values() for part in parts]


def with_random_b(lora):
    rng = np.random.default_rng(1)
    return {
        part: {"a": x["a"], "b": jnp.asarray(rng.standard_normal(x["b"].shape, np.float32))} for part, x in lora.items()
    }


@pytest.mark.parametrize(("family", "targets"), [("llama3", ALL), ("gemma3", ["q", "v", "up"])])
def test_weights_in_the_loss_are_those_of_the_merged_model(family, targets, tmp_path):
    base = pure.load(str(checkpoint(family)), dtype="float32")
    lora = with_random_b(draw(base.config, targets, 3, 0))
    write_adapter(tmp_path / "adapter", exported(lora, 0.5), scale=0.5)
    command = ["merge-lora", str(checkpoint(family)), str(tmp_path / "adapter"), "--output", str(tmp_path / "out")]
    assert main([*command, "--dtype", "float32", "--quiet"]) == 0
    expected = pure.load(str(tmp_path / "out"), dtype="float32").params
    found = jax.jit(partial(merged, base.config, scale=0.5))(base.params, lora)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), found, expected)
    changes = jax.tree.map(lambda x, y: float(np.abs(np.asarray(x) - np.asarray(y)).max()), base.params, expected)
    assert max(jax.tree.leaves(changes)) > 0.1


def test_a_text_is_learned(tmp_path):
    base = pure.load(str(checkpoint("llama3")), dtype="float32")
    pieces = np.tile(np.arange(3, 9, dtype=np.int32), (2, 4))
    first = draw(base.config, ["q", "v", "down"], 4, 0)
    lora, losses = learned(base, pieces, jax.tree.map(jnp.copy, first), 2.0, 30, 0, 0.02, False)
    assert losses[-1] < 0.5 * losses[0]
    write_adapter(tmp_path, exported(lora, 2.0), scale=2.0)
    found = read_adapter(str(tmp_path), matrix_shapes(base.config), base.config.num_layers, 4)
    np.testing.assert_allclose(found.matrices[1, "v"].b, 2 * lora["v"]["b"][1], rtol=1e-6)


def test_mistakes_are_named(tmp_path):
    model = str(checkpoint("llama3"))
    with pytest.raises(ConfigError, match=r"targets=\['x'\] must be some of q, k, v, o"):
        train_lora(model, ["text"], tmp_path, targets=["x"])
    with pytest.raises(ConfigError, match="has no tokenizer"):
        train_lora(model, ["text"], tmp_path)
