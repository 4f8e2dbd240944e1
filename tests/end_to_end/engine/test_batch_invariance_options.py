"""Without `batch_invariant` some bits differ, and with it other attention back ends are refused."""

import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from tests.support import invariance_laws as laws
from tests.support.golden_data import goldens


def test_the_control_without_the_option_some_bits_differ():
    llm = laws.engine(laws.Kind("gemma3", "float32", 1), is_invariant=False, buckets="40 72x40")
    prompt, params = goldens("gemma3")[2].prompt, SamplingParams(**laws.OPTIONS)
    found = {laws.drawn(laws.alone(llm, prompt)), *(laws.drawn(laws.among(llm, prompt, params, n)) for n in (1, 9, 39))}
    assert len(found) > 1


def test_other_back_ends_are_refused_by_name():
    EngineConfig.create("m", batch_invariant=True, attention_backend="invariant")
    for name in ("mosaic_tpu", "mosaic_gpu", "xla", "reference"):
        with pytest.raises(ConfigError, match=f"attention_backend='{name}' .* batch_invariant") as caught:
            EngineConfig.create("m", batch_invariant=True, attention_backend=name)
        assert caught.value.param == "attention_backend"
