"""Rows with drafts emit tokens with the model's own law, whatever is proposed: chi-square tests, and planted faults.

The model is a table: the logits after each of 8 tokens. Pairs of tokens are compared, among them the last draft and the
token after all drafts: a wrong one there does not show at the first position.
"""

from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.drafts.acceptance import sample_and_match
from jaxserve.runner.drafts.draft_tree import Drafts, ancestors
from jaxserve.sampling.sample_tokens import sample_tokens
from jaxserve.sampling.slot_state import init_slot_state
from tests.jaxserve.sampling.rows import law, make_batch, p_value

pytestmark = pytest.mark.optimized  # thousands of draws

NUM_ROWS, NUM_WORDS, NUM_TOKENS, FIRST = 20_000, 8, 4, 3
RANDOM = np.random.default_rng(2)
TABLE = RANDOM.normal(size=(NUM_WORDS, NUM_WORDS)).astype(np.float32)
PROPOSED = RANDOM.dirichlet(np.ones(NUM_WORDS), NUM_WORDS)  # the law of drafts, by the token before
SAMPLERS = {
    "plain": {},
    "temperature": {"temperature": 0.6},
    "top-k": {"top_k": 3},
    "top-p": {"top_p": 0.7},
    "min-p": {"min_p": 0.2, "temperature": 1.5},
    "penalties": {"presence_penalty": 0.8, "frequency_penalty": 0.6, "repetition_penalty": 1.4, "has_penalties": 1},
}
CHAIN, TREE = (0, 1, 2), (0, 0, 1, 1, 2)  # what each draft follows; siblings may have the same token
PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty", "has_penalties")


def emitted(sampler, parents, fault="", num_rows=NUM_ROWS):
    """int[num_rows, NUM_TOKENS]: the first tokens of each row."""
    num_drafts, rows = len(parents), np.arange(num_rows)
    width = 1 + num_drafts
    is_tree = parents != tuple(range(num_drafts))
    of_rows = jnp.broadcast_to(jnp.int32(parents), (num_rows, num_drafts)) if is_tree else None
    shape_only = Drafts(jnp.zeros((1, num_drafts), int), jnp.int32([0]), jnp.int32([parents]))
    is_ancestor = np.asarray(ancestors(shape_only))[0]
    depth = is_ancestor.sum(axis=1) - 1
    batch = jax.tree.map(lambda x: jnp.repeat(x, num_rows * width), make_batch([SAMPLERS[sampler]]))
    by_node = jnp.repeat(jnp.arange(num_rows), width)
    batch = replace(batch, slot=by_node.astype(jnp.int32), seed_low=by_node.astype(jnp.uint32))
    state, is_end = init_slot_state(num_rows, NUM_WORDS, 1), jnp.zeros((num_rows, width), bool)
    text, lens = np.full((num_rows, NUM_TOKENS + width + 1), FIRST), np.ones(num_rows, int)
    while lens.min() <= NUM_TOKENS:
        tokens = [text[rows, lens - 1]]
        for parent in parents:
            ends = PROPOSED[tokens[parent]].cumsum(axis=1)
            tokens.append((RANDOM.random((num_rows, 1)) > ends).sum(axis=1).clip(max=NUM_WORDS - 1))
        nodes = np.stack(tokens, axis=1)
        drafts = np.where(is_ancestor[None, :, 1:], nodes[:, None, 1:], NUM_WORDS).reshape(-1, num_drafts)
        if fault == "penalties do not count drafts":
            drafts = np.full_like(drafts, NUM_WORDS)
        positions = lens[:, None] + (0 if fault == "one random number for a pass" else 1) * depth
        drawn, is_bad, _ = sample_all(
            jnp.asarray(TABLE[nodes].reshape(-1, NUM_WORDS)),
            replace(batch, drafts=jnp.asarray(drafts, jnp.int32)),
            jnp.asarray(positions.reshape(-1), jnp.int32),
            state,
        )
        drawn = np.array(drawn).reshape(num_rows, width)
        if fault == "drafts are not compared":
            drawn[:, :-1] = nodes[:, 1:]
        accepted = sample_and_match(
            jnp.asarray(drawn),
            is_bad.reshape(num_rows, width),
            is_end,
            Drafts(jnp.asarray(nodes[:, 1:], jnp.int32), jnp.full(num_rows, num_drafts, jnp.int32), of_rows),
        )
        counts = np.asarray(accepted.num_tokens)
        if accepted.nodes is not None and fault != "tokens of other nodes are taken":
            drawn = np.take_along_axis(drawn, np.asarray(accepted.nodes), axis=1)
        if fault == "the token after all drafts is another draft":
            drawn[:, -1] = (
                (RANDOM.random((num_rows, 1)) > PROPOSED[nodes[:, -1]].cumsum(axis=1)).sum(axis=1).clip(max=7)
            )
        if fault == "a rejected draft is kept":
            drawn[:, :-1] = nodes[:, 1:]
        is_read = np.zeros((num_rows, NUM_WORDS), np.int16)
        for i in range(width):
            going = np.flatnonzero((i < counts) & (lens < text.shape[1]))
            text[going, lens[going]] = drawn[going, i]
            is_read[going, drawn[going, i]] += 1
            lens[going] += 1
        state = state.replace(counts=state.counts.at[:num_rows].add(jnp.asarray(is_read)))
    return text[:, 1 : 1 + NUM_TOKENS]


sample_all = jax.jit(sample_tokens)


def pair_law(sampler, first):
    """[64]: the law of the tokens at positions `first` and first + 1, over all texts."""
    options = dict(SAMPLERS[sampler])
    presence, frequency, repetition, _ = (options.pop(name, 0) for name in PENALTIES)
    total = np.zeros((NUM_WORDS, NUM_WORDS))
    for text in product(range(NUM_WORDS), repeat=first + 2):
        probability, counts, last = 1.0, np.zeros(NUM_WORDS), FIRST
        for token in text:
            z = TABLE[last].astype(np.float64)
            if repetition:
                z = np.where(counts > 0, np.where(z > 0, z / repetition, z * repetition), z)
                z = z - frequency * counts - presence * (counts > 0)
            probability *= law(z, **options)[token]
            counts[token] += 1
            last = token
            if not probability:
                break
        total[text[-2:]] += probability
    return total.reshape(-1)


def p_values(sampler, parents, **options):
    """Of the first pair, and of the last draft with the token after it."""
    tokens = emitted(sampler, parents, **options)
    firsts = {0, 1 if parents == TREE else len(parents) - 1}
    return [p_value(tokens[:, i] * NUM_WORDS + tokens[:, i + 1], pair_law(sampler, i)) for i in firsts]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_pairs_of_tokens_have_the_law_of_the_model(sampler):
    assert min(p_values(sampler, CHAIN[:1])) > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("parents", [CHAIN, TREE])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_so_have_those_of_three_drafts_and_of_trees(sampler, parents):
    assert min(p_values(sampler, parents)) > 1e-4


@pytest.mark.parametrize(
    "fault",
    [
        "drafts are not compared",
        "a rejected draft is kept",
        "the token after all drafts is another draft",
        "one random number for a pass",
        "penalties do not count drafts",
    ],
)
def test_a_planted_fault_is_seen(fault):
    assert min(p_values("penalties", CHAIN[:1], fault=fault)) < 1e-6


# Of penalties fewer rows: several drafts are counted in a loop for each row, 0.2 ms.
@pytest.mark.thinned(1)
@pytest.mark.parametrize(("sampler", "num_rows"), [("plain", NUM_ROWS), ("penalties", 1_500)])
def test_so_have_the_tokens_along_a_tree(sampler, num_rows):
    assert min(p_values(sampler, TREE, num_rows=num_rows)) > 1e-4


def test_a_planted_fault_in_a_tree_is_seen():
    assert min(p_values("plain", TREE, fault="tokens of other nodes are taken")) < 1e-6
