"""With `batch_invariant` other attention back ends are refused."""

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig


def test_other_back_ends_are_refused_by_name():
    EngineConfig.create("m", batch_invariant=True, attention_backend="invariant")
    for name in ("mosaic_tpu", "mosaic_gpu", "xla", "reference"):
        with pytest.raises(ConfigError, match=f"attention_backend='{name}' .* batch_invariant") as caught:
            EngineConfig.create("m", batch_invariant=True, attention_backend=name)
        assert caught.value.param == "attention_backend"
