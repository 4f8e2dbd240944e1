"""Device: `PROPOSERS`, the table of ways to draft, by the option `method`."""

from collections.abc import Callable

from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.model_settings import Settings
from jaxserve.runner.drafts.draft_model import DraftModel
from jaxserve.runner.drafts.layer_skip import LayerSkip
from jaxserve.runner.drafts.ngram_proposer import NgramProposer
from jaxserve.runner.drafts.proposer import Proposer
from jaxserve.runner.drafts.suffix_proposer import SuffixProposer

# (options, the target, the draft model's configuration if there is one) -> proposer. Raises ConfigError where the
# target cannot be drafted for in this way.
MakeProposer = Callable[[SpeculativeConfig, Settings, ModelConfig | None], Proposer]


def _ngram(config: SpeculativeConfig, target: Settings, draft: ModelConfig | None) -> Proposer:
    return NgramProposer.of(config)


def _suffix(config: SpeculativeConfig, target: Settings, draft: ModelConfig | None) -> Proposer:
    return SuffixProposer(config.suffix_decoding_max_spec_factor, config.suffix_decoding_min_token_prob)


def _draft_model(config: SpeculativeConfig, target: Settings, draft: ModelConfig | None) -> Proposer:
    assert draft is not None
    return DraftModel.of(target, draft)


def _layer_skip(config: SpeculativeConfig, target: Settings, draft: ModelConfig | None) -> Proposer:
    assert config.skip_layers is not None
    return LayerSkip.of(target, config.skip_layers)


PROPOSERS: dict[str, MakeProposer] = {
    "ngram": _ngram,
    "suffix": _suffix,
    "draft_model": _draft_model,
    "layer_skip": _layer_skip,
}
