import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.option_mappings import read_mapping
from jaxserve.core.options.speculative_config import SpeculativeConfig


def test_a_mapping_is_read():
    assert read_mapping(SpeculativeConfig, None, "speculative_config") is None
    expected = SpeculativeConfig(method="ngram", num_speculative_tokens=5, prompt_lookup_min=1, prompt_lookup_max=3)
    given = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    assert read_mapping(SpeculativeConfig, given, "speculative_config") == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("ngram", "'ngram' must map names"),
        ({"method": "ngram"}, "num_speculative_tokens is missing"),
        ({"num_speculative_tokens": 3}, "method is missing"),
        ({"method": "magic", "num_speculative_tokens": 3}, "method='magic' must be one of ngram"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "num_speculative_tokens=0 must be an integer from 1 to 63"),
        ({"method": "ngram", "num_speculative_tokens": True}, "num_speculative_tokens=True"),
        ({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 9}, "prompt_lookup_min=9 .* 1 to 4"),
        (
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_branches": 4},
            "prompt_lookup_branches=4 .* 1 to 3",
        ),
        (
            {"method": "ngram", "num_speculative_tokens": 3, "synthetic_acceptance": 1.5},
            "synthetic_acceptance=1.5 .* 0 to 1",
        ),
        ({"method": "ngram", "num_speculative_tokens": 3, "synthetic_acceptance": True}, "synthetic_acceptance=True"),
        ({"method": "ngram", "num_speculative_tokens": 3, "draft": "x"}, "unknown option 'draft'; known are method"),
        ({"method": "ngram", "num_speculative_tokens": 3, "model": "x"}, "method='ngram' has no use for model"),
        ({"method": "draft_model", "num_speculative_tokens": 3}, "method='draft_model' needs model=\"…\""),
        ({"method": "layer_skip", "num_speculative_tokens": 3}, "method='layer_skip' needs skip_layers="),
        ({"method": "layer_skip", "num_speculative_tokens": 3, "skip_layers": [2, 2]}, "skip_layers=.2, 2. must list"),
        ({"method": "layer_skip", "num_speculative_tokens": 3, "skip_layers": "all"}, "skip_layers='all' must list"),
        ({"method": "draft_model", "num_speculative_tokens": 3, "model": 7}, "model=7 must be the name of a model"),
        (
            {"method": "draft_model", "num_speculative_tokens": 3, "model": "x", "prompt_lookup_max": 3},
            "prompt_lookup_max is an option of method='ngram', not of 'draft_model'",
        ),
    ],
)
def test_what_is_wrong_is_named(value, message):
    with pytest.raises(ConfigError, match=f"speculative_config: {message}") as caught:
        read_mapping(SpeculativeConfig, value, "speculative_config")
    assert caught.value.param == "speculative_config"
