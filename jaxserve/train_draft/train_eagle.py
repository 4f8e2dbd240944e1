"""Wiring: trains an EAGLE-3 draft on texts of its model, which stays as it is (Li et al., arXiv 2503.01840)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.eagle_config import NUM_TAPS, EagleConfig, default_taps
from jaxserve.models.config.layer_kind import GatedMlp, LayerKind
from jaxserve.models.config.model_config import ModelConfig, Stack
from jaxserve.models.eagle_layer import declare_eagle
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params, init_random
from jaxserve.train_draft.eagle_loss import EagleGuesses
from jaxserve.train_draft.learned_vocabulary import frequent_tokens, head_rows
from jaxserve.train_draft.own_texts import OwnTexts
from jaxserve.train_draft.training_loop import Trained, TrainingPlan, train


@dataclass(frozen=True, slots=True)
class EagleDraft:
    """A draft to be trained. vocabulary: int32[Vd], tokens of the target, ascending."""

    config: EagleConfig
    vocabulary: np.ndarray


def make_draft(target: ModelConfig, texts: OwnTexts, vocab_size: int) -> EagleDraft:
    """A draft of the target's sizes, with the `vocab_size` tokens that its texts have most often."""
    if target.num_layers < NUM_TAPS:
        raise ConfigError(f"an EAGLE-3 draft reads {NUM_TAPS} layers, the model has {target.num_layers}", "model")
    vocabulary = frequent_tokens(texts, target.vocab_size, vocab_size)
    last = target.kinds[target.layer_table[-1].kind]
    plain = {"window": None, "softcap": None, "query_scale": None, "has_bias": False, "has_qk_norm": False}
    kind = LayerKind("global", replace(last.attention, **plain), GatedMlp(last.mlp.width))
    model = replace(
        target,
        family="llama",
        vocab_size=len(vocabulary),
        stacks=(Stack(kind.name, kind),),
        layer_stacks=(0,),
        is_tied=False,
        embed_scale=1.0,
        final_softcap=None,
        dtype="float32",
    )
    return EagleDraft(EagleConfig(model, _taps(target.num_layers), target.vocab_size), vocabulary)


def train_eagle(
    settings: Settings,
    params: Params,
    draft: EagleDraft,
    texts: OwnTexts,
    plan: TrainingPlan,
    folder: Path,
    progress: Callable[[int, int], None],
) -> Trained:
    """The draft's weights but for its vocabulary, which `EagleDraft` has."""
    guesses = EagleGuesses(settings, draft.config, draft.vocabulary, plan.depth)
    start = first_weights(settings, params, draft, plan.seed)
    inputs = texts.tokens, texts.is_generated
    kind = {"method": "eagle3", "draft_vocab_size": len(draft.vocabulary)}
    return train(settings, params, start, guesses.loss, guesses.rank_counts, inputs, plan, folder, kind, progress)


def first_weights(settings: Settings, params: Params, draft: EagleDraft, seed: int) -> Params:
    """Float32: the model's head for the draft's vocabulary, and its last layer where the draft's is of the same form;
    the highest of the layers that it reads is its feature. The rest is random."""
    config, target, mesh = draft.config, settings.config, settings.mesh
    specs = declare_eagle(config, target.d_model, mesh, jnp.dtype(jnp.float32))
    del specs["tokens"]
    weights = init_random(specs, mesh, seed)
    width = target.d_model
    weights["fuse"] = jnp.concatenate([jnp.zeros((width, (NUM_TAPS - 1) * width)), jnp.eye(width)], axis=1)
    weights["lm_head"] = head_rows(settings, params, draft.vocabulary).astype(jnp.float32)
    weights["final_norm"] = params["final_norm"]
    own, last = weights["layers"][config.model.stacks[0].name], target.layer_table[-1]
    of_target = params["layers"][target.stacks[last.stack].name]
    if target.stacks[last.stack].kind != config.model.stacks[0].kind:
        return weights

    def taken(name: str) -> jax.Array:
        return of_target[name][last.index_in_stack].astype(jnp.float32)

    qkv = taken("qkv")
    own["qkv"] = (jnp.concatenate([jnp.zeros_like(qkv), qkv], axis=2),)
    own |= {name: (taken(name),) for name in ("o", "gate_up", "down")}
    own["mlp_norm"] = taken("mlp_norm")[None]
    weights["hidden_norm"] = taken("attn_norm")
    return weights


def _taps(num_layers: int) -> tuple[int, ...]:
    """As published drafts have them; of models with few layers, where these would be the same ones, others."""
    return default_taps(num_layers) if num_layers > 2 * NUM_TAPS else (0, num_layers // 2, num_layers - 1)
