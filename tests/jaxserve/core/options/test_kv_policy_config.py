"""Checks of `kv_policy`: its values, and the engine sizes that they need."""

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.kv_policy_config import StreamingConfig


def test_a_mapping_is_read():
    assert EngineConfig.create("m").streaming is None
    read = EngineConfig.create("m", kv_policy={"name": "streaming", "window": 60}).streaming
    assert read == StreamingConfig(name="streaming", num_sinks=4, window=60)
    assert read.capacity == 64


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("streaming", "'streaming' must map names of options to values"),
        ({"window": 60}, "name is missing"),
        ({"name": "streaming"}, "window is missing"),
        ({"name": "h2o", "window": 60}, "name='h2o' must be 'streaming'"),
        ({"name": "streaming", "window": 0}, "window=0 must be an integer of at least 1"),
        ({"name": "streaming", "window": 60, "num_sinks": -1}, "num_sinks=-1 must be an integer of at least 0"),
        ({"name": "streaming", "window": 60, "sinks": 4}, "unknown option 'sinks'; known are name, window, num_sinks"),
    ],
)
def test_what_is_wrong_is_named(value, message):
    with pytest.raises(ConfigError, match=f"kv_policy: {message}") as caught:
        EngineConfig.create("m", kv_policy=value)
    assert caught.value.param == "kv_policy"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_sinks": 17}, "num_sinks=17 must fit a page of 16 tokens"),
        ({"window": 31}, "window=31 must be at least two pages of 16 tokens"),
        ({"window": 125}, "num_sinks \\+ window = 129 must fit max_model_len=128"),
        ({"windows": (64, 8)}, "all layers of this model have sliding windows"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, message):
    windows = changes.pop("windows", (64, None))
    policy = StreamingConfig(**{"name": "streaming", "window": 32} | changes)
    with pytest.raises(ConfigError, match=f"kv_policy: {message}"):
        policy.check_sizes(16, 128, windows)


def test_sizes_that_just_fit():
    StreamingConfig(name="streaming", window=112, num_sinks=16).check_sizes(16, 128, (None,))
    StreamingConfig(name="streaming", window=32, num_sinks=0).check_sizes(16, 128, (8, None))
