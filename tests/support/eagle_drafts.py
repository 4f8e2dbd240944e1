"""EAGLE-3 drafts of tiny models."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from jaxserve import SamplingParams
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.engine.build.eagle_folder import write_eagle
from jaxserve.models.config.eagle_config import EagleConfig
from jaxserve.models.config.layer_kind import GatedMlp, LayerKind
from jaxserve.models.config.model_config import Stack
from jaxserve.models.eagle_layer import declare_eagle
from jaxserve.models.params import init_random
from tests.support.drafting import always
from tests.support.golden_data import goldens
from tests.support.naive_eagle import NaiveEagle
from tests.support.tiny_engines import tiny_engine

NUM_DRAFTS = 5

LONG = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


def prompts():
    return [golden.prompt * 2 for golden in goldens("llama3")]


def answers(family="llama3"):
    """Greedy answers to `prompts`."""
    return [out.outputs[0].token_ids for out in tiny_engine(family).generate(prompts(), LONG, use_tqdm=False)]


def random_draft(family, vocab_size, *, seed=0):
    """An EAGLE draft of random weights, whose tokens are those that greedy answers have most often."""
    llm = tiny_engine(family)
    target, mesh = llm.parts.model, llm.parts.runner.settings.model.mesh
    attention = replace(target.kinds[-1].attention, window=None, has_qk_norm=False, query_scale=None)
    kind = LayerKind("global", attention, GatedMlp(target.kinds[0].mlp.width))
    model = replace(
        target,
        family="llama",
        vocab_size=vocab_size,
        stacks=(Stack("global", kind),),
        layer_stacks=(0,),
        is_tied=False,
        embed_scale=1.0,
    )
    config = EagleConfig(model, (0, 1, 2), target.vocab_size)
    specs = declare_eagle(config, target.d_model, mesh, jnp.dtype(jnp.float32))
    del specs["tokens"]
    counts = np.bincount([token for answer in answers(family) for token in answer], minlength=target.vocab_size)
    vocabulary = np.sort(np.argsort(-counts, kind="stable")[:vocab_size])
    return NaiveEagle(llm, config, init_random(specs, mesh, seed), vocabulary)


def saved(folder, naive):
    """The folder, with the draft in it."""
    mesh = naive.llm.parts.runner.settings.model.mesh
    write_eagle(folder, naive.config, naive.draft, naive.vocabulary, mesh)
    return str(folder)


def eagle_engine(folder, family="llama3", *, topk, **options):
    config = SpeculativeConfig(method="eagle3", model=folder, num_speculative_tokens=NUM_DRAFTS, eagle_topk=topk)
    return always(tiny_engine(family, speculative_config=config, **options))
