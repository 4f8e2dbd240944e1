"""Drafts of the model itself with fewer layers change no token, and those of all that matters are right."""

from functools import partial
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.models import transformer
from jaxserve.runner.drafts.layer_skip import LayerSkip
from jaxserve.runner.drafts.proposer import DraftRows
from tests.support.draft_laws import check_every_pair_of_features
from tests.support.drafting import always, counted
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL, tiny_engine


def skipping(family, *layers, **options):
    config = SpeculativeConfig(method="layer_skip", skip_layers=layers, num_speculative_tokens=3)
    return always(tiny_engine(family, speculative_config=config, **options))


@pytest.mark.thorough
def test_every_pair_of_features_gives_the_same_text():
    """On two devices. Gemma's layers have windows, whose pages the drafts write, too."""
    proposed, accepted = check_every_pair_of_features("gemma3", skipping("gemma3", 0, 3, tensor_parallel_size=2))
    assert 0 < accepted < proposed


@pytest.mark.thorough
@pytest.mark.parametrize(("platform", "num_drafts"), [("cpu", 3), ("gpu", 2)])
def test_drafts_are_right_where_the_skipped_layer_adds_nothing(platform, num_drafts, monkeypatch):
    """A layer whose outputs are zero: with and without it the model is the same, its KV included.

    Layers run as on each platform; the numbers differ lest one engine use the other's programs.
    """
    as_on_platform = partial(transformer.layer_loops, platform=platform)
    monkeypatch.setattr(transformer, "layer_loops", lambda layers, table, _: as_on_platform(layers, table))
    config = {"method": "layer_skip", "skip_layers": [1], "num_speculative_tokens": num_drafts}
    llm = always(LLM(str(checkpoint("llama3")), speculative_config=config, **SMALL))
    params = llm.parts.runner.params
    ((stack, leaves),) = params["layers"].items()

    def without_second(leaf):
        return tuple(jnp.zeros_like(w) if i == 1 else w for i, w in enumerate(leaf))

    changed = {name: without_second(leaf) if name in ("o", "down") else leaf for name, leaf in leaves.items()}
    llm.update_weights(params | {"layers": {stack: changed}})
    asked = SamplingParams(temperature=0.8, max_tokens=32, ignore_eos=True, seed=1)
    with counted(llm) as seen:
        llm.generate([golden.prompt for golden in goldens("llama3")], asked, use_tqdm=False)
    proposed, accepted = np.sum(seen, axis=0)
    assert proposed == accepted > num_drafts * 20


@pytest.mark.parametrize(
    ("layers", "message"),
    [([99], "skip_layers has 99, the model's layers are 0 to"), ([0, 1, 2], "skip_layers leaves no layer")],
)
def test_layers_that_cannot_be_skipped_are_refused(layers, message):
    config = {"method": "layer_skip", "skip_layers": layers, "num_speculative_tokens": 3}
    with pytest.raises(ConfigError, match=message):
        LLM(str(checkpoint("llama3")), speculative_config=config, **SMALL)


def test_rows_that_have_dropped_pages_are_read_within_their_tables():
    """They do not draft, but a pass computes all its rows. The second row has dropped nothing."""
    model = tiny_engine("llama3").parts.runner.settings.model
    skip, page_size = LayerSkip.of(model, (1,)), model.page_size
    starts, first_pages = jnp.array([5 * page_size + 2, 9], jnp.int32), jnp.array([[5, 0]], jnp.int32)
    tables = jnp.array([[[7, 8], [3, 0]]], jnp.int32)
    rows = DraftRows(starts, starts, starts, jnp.int32(2), starts, (tables,), (first_pages,), cast(Any, None))
    (meta,) = skip._metas(rows, starts)
    np.testing.assert_array_equal(meta.kv_lens, [3, 10])
    np.testing.assert_array_equal(meta.first_pages, [[0, 0]])
    np.testing.assert_array_equal(meta.write_slots, [[7 * page_size + 2, 3 * page_size + 9]])
