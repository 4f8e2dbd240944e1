"""Packed weights, what they stand for, and the tokens of naive loops with either."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from jaxserve import SamplingParams
from pallas_kernels.qtensor import QTensor
from tests.support.golden_data import goldens
from tests.support.naive_loop import NaiveModel

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


def greedy_texts(llm, family, **changes):
    """Of an engine, after the goldens' prompts."""
    prompts = [golden.prompt for golden in goldens(family)]
    return [out.outputs[0].token_ids for out in llm.generate(prompts, replace(GREEDY, **changes), use_tqdm=False)]


def naive(llm, params, family):
    """The same tokens, of a loop with these weights."""
    loop = naive_model(llm, params)
    return [loop.greedy(golden.prompt, GREEDY.max_tokens) for golden in goldens(family)]


def naive_model(llm, params):
    settings = llm.parts.runner.settings.model
    return NaiveModel(settings.config, params, settings.mesh, "xla")


def is_packed(leaf):
    return isinstance(leaf, QTensor)


def decoded(params):
    """The same weights, not packed."""

    def of_layer(codes, scales):
        return codes.astype(jnp.float32) * scales[..., None]

    def dense(leaf):
        if not is_packed(leaf):
            return leaf
        if isinstance(leaf.codes, tuple):
            return tuple(map(of_layer, leaf.codes, leaf.scales))
        return of_layer(leaf.codes, leaf.scales)

    return jax.tree.map(dense, params, is_leaf=is_packed)
