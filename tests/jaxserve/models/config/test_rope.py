"""Rotary-embedding scaling: the meaning of its settings, and the rejection of contradictory ones."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.core.errors import ConfigError
from jaxserve.models.config import rope_gguf
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.rope import LongRope, Rope
from jaxserve.models.config.rope_hf import hf_rope, make_rope
from jaxserve.models.config.rope_scaling import yarn_factors

YARN = {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
LONGROPE = {"rope_theta": 1e4, "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1, 2, 3, 4]}


def from_header(tables=None, **header):
    keys = ConfigKeys({f"rope.{name}": value for name, value in header.items()}, "header")
    rope, positions = rope_gguf.make_rope(keys, 8, 128, tables or {})
    keys.finish()
    return rope, positions


def test_yarn_keeps_short_waves_and_slows_long_ones_with_a_ramp_between():
    factors = yarn_factors(1e6, 128, 4.0, 32_768)
    waves = [2 * math.pi * 1e6 ** (i / 64) for i in range(64)]
    assert all(f == 1.0 for f, wave in zip(factors, waves, strict=True) if wave < 32_768 / 40)
    assert all(f == 4.0 for f, wave in zip(factors, waves, strict=True) if wave > 32_768 * 1.3)
    assert list(factors) == sorted(factors)
    assert sum(1.0 < f < 4.0 for f in factors) > 10


def test_yarn_reaches_beyond_a_stated_context_that_is_still_the_original_one():
    assert make_rope(YARN, 128, 32_768)[1] == 131_072
    assert make_rope(YARN, 128, 200_000)[1] == 200_000
    without_factor = {name: value for name, value in YARN.items() if name != "factor"}
    assert make_rope(without_factor, 128, 131_072) == make_rope(YARN, 128, 131_072)


def test_yarns_attention_factor_follows_the_factor_unless_it_is_stated():
    assert make_rope(YARN, 128, 32_768)[0].attention_factor == 0.1 * math.log(4) + 1
    assert make_rope(YARN | {"attention_factor": 1.5}, 128, 32_768)[0].attention_factor == 1.5
    assert make_rope(YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}, 128, 32_768)[0].attention_factor == 1.0


def test_a_header_gives_the_same_yarn():
    header = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 32}
    rope, positions = from_header(freq_base=1e6, **header)
    assert positions == 128
    assert rope == make_rope(YARN | {"original_max_position_embeddings": 32}, 8, 128)[0]
    louder, _ = from_header(freq_base=1e6, **header, **{"scaling.attn_factor": 2.0})
    assert louder.attention_factor == 2 * rope.attention_factor
    flat, _ = from_header(freq_base=1e6, **header, **{"scaling.yarn_log_multiplier": 1.0})
    assert flat.attention_factor == 1.0


def test_the_context_settles_which_factors_rotate():
    rope, _ = make_rope(LONGROPE, 8, 128, original_len=32)
    assert rope.attention_factor == math.sqrt(1 + math.log(4) / math.log(32))
    assert rope.for_context(32) == Rope(1e4, None, rope.attention_factor)
    assert rope.for_context(33) == Rope(1e4, (1.0, 2.0, 3.0, 4.0), rope.attention_factor)
    with pytest.raises(ValueError, match="for_context"):
        rope.frequencies(8)


def test_headers_say_what_llama_cpp_reads_in_them():
    assert from_header()[0] == Rope(1e4)
    assert from_header(**{"scaling.factor": 0.0})[0] == Rope(1e4)
    assert from_header(**{"scaling.factor": 2.0})[0] == Rope(1e4, (2.0,) * 4)
    assert from_header(**{"scaling.factor": 2.0, "scaling.type": "none"})[0] == Rope(1e4)
    assert from_header(dimension_count=6)[0] == Rope(1e4, dim=6)
    assert from_header({rope_gguf.FREQS: (1.0, 2.0, 3.0, 4.0)})[0] == Rope(1e4, (1.0, 2.0, 3.0, 4.0))


@pytest.mark.parametrize(
    ("tables", "header", "fault"),
    [
        ({rope_gguf.SHORT: (1.0,) * 4}, {}, "go together"),
        ({rope_gguf.FREQS: (1.0,) * 4, rope_gguf.LONG: (1.0,) * 4}, {}, "go together"),
        ({rope_gguf.FREQS: (1.0,) * 4}, {"scaling.type": "yarn"}, "only one"),
        ({}, {"scaling.type": "longrope"}, rope_gguf.SHORT),
        ({}, {"scaling.type": "yarn", "scaling.yarn_ext_factor": 0.5}, "ext_factor"),
        ({}, {"freq_base": 0.0}, "freq_base"),
        ({}, {"scaling.factor": "two"}, "scaling.factor"),
        ({}, {"scaling.factor": [1.0, 2.0]}, "scaling.factor"),
        ({}, {"scaling.alpha": 2.0}, "scaling.alpha"),
    ],
)
def test_headers_that_contradict_themselves_are_refused(tables, header, fault):
    with pytest.raises(ConfigError, match=fault):
        from_header(tables, **header)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        (YARN | {"short_factor": [1.0]}, "short_factor"),
        (LONGROPE | {"long_factor": "long"}, "long_factor"),
        (YARN | {"beta_fast": -1}, "beta_fast"),
        ({"rope_theta": 1e4, "partial_rotary_factor": 1.5}, "partial_rotary_factor"),
        ({"rope_theta": 1e4, "rope_type": "proportional"}, "proportional"),
    ],
)
def test_settings_that_mean_nothing_are_refused(values, fault):
    with pytest.raises(ConfigError, match=fault):
        make_rope(values, 8, 128)


FACTORS = st.none() | st.lists(st.floats(1.0, 64.0), min_size=4, max_size=4).map(tuple)


@given(
    factors=FACTORS.filter(lambda f: f is None or set(f) != {1.0}),
    long=st.none() | st.lists(st.floats(65.0, 99.0), min_size=4, max_size=4).map(tuple),
    attention=st.sampled_from([1.0, 1.19]),
)
def test_any_rope_can_be_written_and_read_again(factors, long, attention):
    rope = Rope(1e4, factors, attention, long=long and LongRope(long, 32))
    assert make_rope(hf_rope(rope, 8, 128), 8, 128)[0] == rope


@given(head_dim=st.integers(1, 128).map(lambda n: 2 * n), data=st.data())
def test_any_part_of_a_head_survives_rounding(head_dim, data):
    dim = 2 * data.draw(st.integers(1, head_dim // 2))
    rope = Rope(1e4, dim=None if dim == head_dim else dim)
    assert make_rope(hf_rope(rope, head_dim, 128), head_dim, 128)[0] == rope
