"""With `batch_invariant` other attention back ends are refused, and rules of acceptance that depend on the batch."""

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig


def test_other_back_ends_are_refused_by_name():
    EngineConfig.create("m", batch_invariant=True, attention_backend="invariant")
    for name in ("mosaic_tpu", "mosaic_gpu", "xla", "reference"):
        with pytest.raises(ConfigError, match=f"attention_backend='{name}' .* batch_invariant") as caught:
            EngineConfig.create("m", batch_invariant=True, attention_backend=name)
        assert caught.value.param == "attention_backend"


@pytest.mark.parametrize("acceptance", ["rejection", "typical"])
def test_rules_by_which_texts_depend_on_the_batch_are_refused(acceptance):
    drafts = {"method": "layer_skip", "skip_layers": [1], "num_speculative_tokens": 3}
    EngineConfig.create("m", batch_invariant=True, speculative_config=drafts)
    EngineConfig.create("m", speculative_config=drafts | {"acceptance": acceptance})
    with pytest.raises(ConfigError, match=f"acceptance='{acceptance}' .* batch_invariant") as caught:
        EngineConfig.create("m", batch_invariant=True, speculative_config=drafts | {"acceptance": acceptance})
    assert caught.value.param == "speculative_config"
