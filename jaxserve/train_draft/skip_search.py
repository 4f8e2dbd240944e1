"""Wiring: which layers a model can draft without: a greedy search of at most 60 evaluations.

A skipped layer is one whose outputs are zero: all sets run in one program. An evaluation reads texts that the model has
drawn without the layers, and counts the positions at which the likeliest token is that of the whole model. Drafts do
better: they attend to the whole model's KV of all earlier tokens. (Zhang et al., Draft & Verify, arXiv 2309.08168,
search with 1,000 evaluations of speed.)
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32

from jaxserve.core.errors import ConfigError
from jaxserve.functional.forward_steps import forward, logits
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.train_draft.own_texts import OwnTexts

MAX_EVALUATIONS = 60
OUTPUTS = ("o", "down")
"""The matrices whose outputs a layer adds to the hidden states."""


@dataclass(frozen=True, slots=True)
class SkipSet:
    """skipped: layers. agreement: share of the positions with the same likeliest token. speed: tokens in a given time,
    over those of decoding, if each draft costs the share of the layers that run and drafts agree independently."""

    skipped: tuple[int, ...]
    agreement: float
    speed: float


def find_skips(
    settings: Settings,
    params: Params,
    texts: OwnTexts,
    num_drafts: int,
    progress: Callable[[int, int], None],
) -> list[SkipSet]:
    """The sets that were found on the way, each with one layer more, the best last.

    Layers are ranked by the agreement without each alone, then left out in this order as long as that is expected to be
    faster. Of more than 40 layers every other one, or fewer, are candidates.
    """
    num_layers = settings.config.num_layers
    if num_layers == 1:
        raise ConfigError("the model has one layer: drafts can skip none")
    candidates = list(range(0, num_layers, 1 + (num_layers - 1) // 40))
    own = [jnp.asarray(is_own[None]) for is_own in texts.is_generated]
    tokens = [jnp.asarray(text[None]) for text in texts.tokens]
    likeliest, left = jax.jit(partial(_likeliest, settings)), MAX_EVALUATIONS
    wanted = [cast(jax.Array, likeliest(params, text)) for text in tokens]
    count = jax.jit(partial(_num_agreeing, settings))

    def evaluate(skipped: Collection[int]) -> SkipSet:
        nonlocal left
        left -= 1
        progress(MAX_EVALUATIONS - left, MAX_EVALUATIONS)
        changed = _without(settings, params, skipped)
        counts = [cast(jax.Array, count(changed, *of_text)) for of_text in zip(tokens, wanted, own, strict=True)]
        agreement = float(np.sum(counts) / max(texts.is_generated.sum(), 1))
        cost = 1 - len(skipped) / num_layers
        tokens_a_pass = sum(agreement**n for n in range(num_drafts + 1))
        return SkipSet(tuple(sorted(skipped)), agreement, tokens_a_pass / (1 + num_drafts * cost))

    alone = {layer: evaluate([layer]) for layer in candidates}
    order = sorted(candidates, key=lambda layer: -alone[layer].agreement)
    found = [alone[order[0]]]
    for layer in order[1:]:
        if not left or len(found[-1].skipped) == num_layers - 1:
            break
        more = evaluate([*found[-1].skipped, layer])
        if more.speed > found[-1].speed:
            found.append(more)
    return found


def _likeliest(settings: Settings, params: Params, tokens: Int32[Array, "B T"]) -> Int32[Array, "B T"]:
    """The likeliest token after each."""
    hidden, _ = forward(settings, params, tokens)
    return lax.argmax(logits(settings, params, hidden), 2, jnp.int32)


def _num_agreeing(
    settings: Settings,
    params: Params,
    tokens: Int32[Array, "B T"],
    wanted: Int32[Array, "B T"],
    is_own: Bool[Array, "B T"],
) -> Int32[Array, ""]:
    """Positions before a drawn token at which the likeliest one is `wanted`."""
    is_counted = jnp.roll(is_own, -1, axis=1) & (jnp.arange(tokens.shape[1]) < tokens.shape[1] - 1)[None]
    return jnp.sum((_likeliest(settings, params, tokens) == wanted) & is_counted, dtype=jnp.int32)


def _without(settings: Settings, params: Params, skipped: Collection[int]) -> Params:
    """The weights with outputs of zero in these layers; all other arrays are shared."""
    stacks: Params = dict(params["layers"])
    for number in skipped:
        row = settings.config.layer_table[number]
        name = settings.config.stacks[row.stack].name
        stack: dict[str, Any] = dict(stacks[name])
        for matrix in OUTPUTS:
            stack[matrix] = _zeroed(stack[matrix], row.index_in_stack)
        stacks[name] = stack
    return params | {"layers": stacks}


def _zeroed(leaf: Any, index: int) -> Any:
    if isinstance(leaf, tuple):
        layers = cast(tuple[jax.Array, ...], leaf)
        return (*layers[:index], jnp.zeros_like(layers[index]), *layers[index + 1 :])
    return leaf.at[index].set(0)
