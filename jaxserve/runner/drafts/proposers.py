"""Device: `PROPOSERS`, the table of ways to draft, by the option `method`."""

from collections.abc import Callable

from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.models.config.eagle_config import EagleConfig
from jaxserve.models.config.medusa_heads import MedusaHeads
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.model_settings import Settings
from jaxserve.runner.drafts.draft_model import DraftModel
from jaxserve.runner.drafts.eagle import Eagle
from jaxserve.runner.drafts.eagle_tree import EagleTree
from jaxserve.runner.drafts.layer_skip import LayerSkip
from jaxserve.runner.drafts.lookup_or_learned import LookupOrLearned
from jaxserve.runner.drafts.medusa import Medusa
from jaxserve.runner.drafts.ngram_proposer import NgramProposer
from jaxserve.runner.drafts.proposer import Proposer
from jaxserve.runner.drafts.suffix_proposer import SuffixProposer

DraftShape = ModelConfig | MedusaHeads | EagleConfig
"""The configuration of a proposer's own weights."""

# (options, the target, the shape of the proposer's own weights if it has such) -> proposer. Raises ConfigError where
# the target cannot be drafted for in this way.
MakeProposer = Callable[[SpeculativeConfig, Settings, DraftShape | None], Proposer]


def _ngram(config: SpeculativeConfig, target: Settings, draft: DraftShape | None) -> Proposer:
    return NgramProposer.of(config)


def _suffix(config: SpeculativeConfig, target: Settings, draft: DraftShape | None) -> Proposer:
    return SuffixProposer(config.suffix_decoding_max_spec_factor, config.suffix_decoding_min_token_prob)


def _draft_model(config: SpeculativeConfig, target: Settings, draft: DraftShape | None) -> Proposer:
    assert isinstance(draft, ModelConfig)
    return DraftModel.of(target, draft, keeps_laws=config.acceptance == "rejection")


def _layer_skip(config: SpeculativeConfig, target: Settings, draft: DraftShape | None) -> Proposer:
    assert config.skip_layers is not None
    return LayerSkip.of(target, config.skip_layers, keeps_laws=config.acceptance == "rejection")


def _medusa(config: SpeculativeConfig, target: Settings, draft: DraftShape | None) -> Proposer:
    assert isinstance(draft, MedusaHeads)
    return Medusa.of(target, draft)


def _eagle3(config: SpeculativeConfig, target: Settings, draft: DraftShape | None) -> Proposer:
    assert isinstance(draft, EagleConfig)
    chain = Eagle.of(target, draft)
    return chain if config.eagle_topk == 1 else EagleTree.of_chain(chain, config.eagle_topk)


def make_proposer(config: SpeculativeConfig, target: Settings, draft: DraftShape | None) -> Proposer:
    """The proposer of these options; raises ConfigError as `MakeProposer`."""
    parts = [PROPOSERS[part.method](part, target, draft) for part in config.parts]
    return parts[0] if len(parts) == 1 else LookupOrLearned(*parts)


PROPOSERS: dict[str, MakeProposer] = {
    "ngram": _ngram,
    "suffix": _suffix,
    "draft_model": _draft_model,
    "layer_skip": _layer_skip,
    "medusa": _medusa,
    "eagle3": _eagle3,
}
