"""Rejection sampling emits tokens with the target's law: chi-square tests on tables, and planted faults.

Target and draft are tables: the logits after each of 8 tokens. Pairs of tokens are compared, among them the last draft
and the token after all drafts: a wrong one there does not show at the first position.
"""

from dataclasses import replace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.drafts import acceptance_rules
from jaxserve.runner.drafts.acceptance import sample_and_match
from jaxserve.runner.drafts.acceptance_rules import RejectionSampling, TypicalAcceptance
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.sampling import token_law as laws_of_tokens
from jaxserve.sampling.probabilities import draw_index, each_row
from jaxserve.sampling.sample_tokens import draw_tokens
from jaxserve.sampling.seeded_random import ACCEPTANCE, DRAFT, row_words, uniforms
from jaxserve.sampling.token_law import token_law
from tests.jaxserve.sampling.rows import law, make_batch, p_value

pytestmark = pytest.mark.optimized  # thousands of draws


@pytest.fixture(scope="module", autouse=True)
def all_rows_at_once():
    """As on accelerators: on CPU one row after the other is handled, which takes 30 s for 20,000 of 8 words."""
    with patch.object(laws_of_tokens, "each_row", lambda function, *rows: jax.vmap(function)(*rows)):
        yield


NUM_WORDS, NUM_TOKENS, FIRST = 8, 4, 3
NUM_ROWS, FEW_ROWS = 20_000, 4_000
RANDOM = np.random.default_rng(5)
TARGET, DRAFTS = RANDOM.normal(size=(2, NUM_WORDS, NUM_WORDS)).astype(np.float32)
SAMPLERS = {
    "plain": {},
    "temperature": {"temperature": 0.6},
    "top-k": {"top_k": 3},
    "top-p": {"top_p": 0.7},
    "min-p": {"min_p": 0.2, "temperature": 1.5},
}


def at_once(function, rows):
    return function(*rows)


draw_all, match = jax.jit(draw_tokens), jax.jit(sample_and_match)


@jax.jit
def draw_draft(logits, batch, positions):
    q = token_law(logits, batch)
    return draw_index(q, uniforms(row_words(batch, positions, DRAFT))[0]), q


@jax.jit
def choose(logits, batch, positions, drafts, drawn):
    return RejectionSampling().choose(at_once, logits, batch, positions, drafts, drawn)


def emitted(sampler, num_drafts, fault="", *, are_certain=False, num_rows=NUM_ROWS):
    """(int[num_rows, NUM_TOKENS], accepted drafts of the first pass in all rows). are_certain: drafts count as if they
    had not been drawn, as those of a lookup."""
    rows, width = np.arange(num_rows), 1 + num_drafts
    one = make_batch([SAMPLERS[sampler]])
    batch = replace(
        jax.tree.map(lambda x: jnp.repeat(x, num_rows), one), seed_low=jnp.arange(num_rows, dtype=jnp.uint32)
    )
    by_node = jax.tree.map(lambda x: jnp.repeat(x, width), batch)
    text, lens, first = np.full((num_rows, NUM_TOKENS + width + 1), FIRST), np.ones(num_rows, int), None
    while lens.min() <= NUM_TOKENS:
        nodes, laws = [text[rows, lens - 1]], []
        for i in range(num_drafts):
            token, q = draw_draft(jnp.asarray(DRAFTS[nodes[-1]]), batch, jnp.asarray(lens + i, jnp.int32))
            nodes.append(np.asarray(token))
            laws.append(q)
        tokens = np.stack(nodes, axis=1)
        logits = jnp.asarray(TARGET[tokens].reshape(-1, NUM_WORDS))
        positions = jnp.asarray((lens[:, None] + np.arange(width)).reshape(-1), jnp.int32)
        drawn = draw_all(logits, by_node, positions)
        if fault == "the token after all drafts is another draft":
            drawn = draw_draft(jnp.asarray(DRAFTS[tokens].reshape(-1, NUM_WORDS)), by_node, positions)[0]
        known = jnp.stack(laws, axis=1)
        if fault == "the laws are of other tokens":
            known = jnp.roll(known, 1, axis=2)
        if fault == "every draft is accepted":
            known = jnp.zeros_like(known)
        if are_certain:
            known = jax.nn.one_hot(tokens[:, 1:], NUM_WORDS)
        num = jnp.full(num_rows, num_drafts, jnp.int32)
        drafts = Drafts(jnp.asarray(tokens[:, 1:], jnp.int32), num, laws=known)
        chosen = choose(logits, by_node, positions, drafts, drawn).reshape(num_rows, width)
        none = jnp.zeros((num_rows, width), bool)
        counts = np.asarray(match(chosen, none, none, drafts).num_tokens)
        first = counts.sum() - num_rows if first is None else first
        for i in range(width):
            going = np.flatnonzero((i < counts) & (lens < text.shape[1]))
            text[going, lens[going]] = np.asarray(chosen)[going, i]
            lens[going] += 1
    return text[:, 1 : 1 + NUM_TOKENS], first


def laws_of(table, sampler):
    return np.stack([law(row, **SAMPLERS[sampler]) for row in table])


def p_values(sampler, num_drafts, fault="", **options):
    """Of the first pair, and of the last draft with the token after it."""
    tokens, _ = emitted(sampler, num_drafts, fault, **options)
    p = laws_of(TARGET, sampler)
    found, before = list[float](), np.eye(NUM_WORDS)[FIRST]
    for i in range(NUM_TOKENS - 1):
        before = before @ p
        if i in (0, num_drafts - 1):
            pairs = (before[:, None] * p).reshape(-1)
            found.append(p_value(tokens[:, i] * NUM_WORDS + tokens[:, i + 1], pairs))
    return found


def test_pairs_of_tokens_have_the_law_of_the_target():
    assert min(p_values("plain", 1)) > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("num_drafts", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_so_have_those_of_every_sampler(sampler, num_drafts):
    assert min(p_values(sampler, num_drafts)) > 1e-4


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "fault",
    ["the token after all drafts is another draft", "the laws are of other tokens", "every draft is accepted"],
)
def test_a_planted_fault_is_seen(fault):
    assert min(p_values("plain", 1, fault, num_rows=FEW_ROWS)) < 1e-6


@pytest.mark.thinned(1)
@pytest.mark.parametrize("factor", [np.nan, 2.0])
def test_where_nothing_is_left_of_the_targets_law_its_own_draw_stays(factor):
    """A draft's law that is none, of a model that overflows, or one that is nowhere less than the target's."""
    num_rows, batch = 50, make_batch([{}] * 50)
    logits, positions = jnp.asarray(np.tile(TARGET[FIRST], (num_rows, 1))), jnp.arange(num_rows, dtype=jnp.int32)
    drawn = draw_all(logits, batch, positions)
    tokens = jnp.full((num_rows // 2, 1), NUM_WORDS - 1, jnp.int32)
    laws = factor * token_law(logits, batch)[::2, None]
    drafts = Drafts(tokens, jnp.ones(num_rows // 2, jnp.int32), laws=laws)
    chosen = np.asarray(choose(logits, batch, positions, drafts, drawn)).reshape(-1, 2)
    own, last = np.asarray(drawn).reshape(-1, 2), np.asarray(tokens)[:, 0]
    np.testing.assert_array_equal(chosen[:, 1], own[:, 1])
    is_accepted = chosen[:, 0] != own[:, 0]
    assert (chosen[is_accepted, 0] == last[is_accepted]).all()
    assert is_accepted.any() == (not np.isnan(factor))


def of_the_targets_law(monkeypatch):
    """What is drawn in place of a rejected draft has the target's law, not that of what the draft's law has too little
    of."""
    known = list[jax.Array]()

    def law_of_target(logits, sampling):
        known.append(token_law(logits, sampling))
        return known[-1]

    monkeypatch.setattr(acceptance_rules, "token_law", law_of_target)
    monkeypatch.setattr(acceptance_rules, "draw_index", lambda _, chance: draw_index(known[-1], chance))


def not_normalised(monkeypatch):
    """The rest is taken to be a law as it is: what is missing to 1 goes to the last word."""

    def draw(weights, chance):
        return jnp.minimum(jnp.sum(jnp.cumsum(weights, axis=1) <= chance[:, None], axis=1), NUM_WORDS - 1)

    monkeypatch.setattr(acceptance_rules, "draw_index", draw)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("plant", [of_the_targets_law, not_normalised])
def test_a_wrong_residual_is_seen(monkeypatch, plant):
    plant(monkeypatch)
    choose.clear_cache()
    try:
        assert min(p_values("plain", 1, num_rows=FEW_ROWS)) < 1e-6
    finally:
        choose.clear_cache()


def test_random_numbers_that_are_used_twice_are_seen():
    try:
        for name in ("RESIDUAL", "ACCEPTANCE"):  # of acceptance for the other token, and of the draft for acceptance
            with patch.object(acceptance_rules, name, ACCEPTANCE if name == "RESIDUAL" else DRAFT):
                choose.clear_cache()
                assert min(p_values("plain", 1, num_rows=FEW_ROWS)) < 1e-6
    finally:
        choose.clear_cache()


def test_as_many_drafts_are_accepted_as_the_laws_have_in_common():
    """Σ min(p, q). Where drafts count as certain tokens have the same law, but Σ p q are accepted, as by matching."""
    p, q = (laws_of(table, "plain")[FIRST] for table in (TARGET, DRAFTS))
    for are_certain, expected in ((False, np.minimum(p, q).sum()), (True, (p * q).sum())):
        _, accepted = emitted("plain", 1, are_certain=are_certain, num_rows=FEW_ROWS)
        assert abs(accepted / FEW_ROWS - expected) < 4 * np.sqrt(expected * (1 - expected) / FEW_ROWS)
    assert min(p_values("plain", 1, are_certain=True, num_rows=FEW_ROWS)) > 1e-4


def test_laws_of_tokens_are_those_of_drawing():
    random = np.random.default_rng(1)
    logits = random.normal(scale=2, size=(len(SAMPLERS) + 1, 200)).astype(np.float32)
    batch = make_batch([*SAMPLERS.values(), {"temperature": 0.0}])
    expected = [law(z, **options) for z, options in zip(logits, SAMPLERS.values(), strict=False)]
    expected.append(np.eye(200)[logits[-1].argmax()])
    for each in (each_row, laws_of_tokens.each_row):
        with patch.object(laws_of_tokens, "each_row", each):
            np.testing.assert_allclose(token_law(jnp.asarray(logits), batch), expected, atol=1e-6)


def test_typical_drafts_are_accepted_on_the_longest_path():
    """Written out, on random trees."""
    random, rule = np.random.default_rng(0), TypicalAcceptance(0.2, 0.6)
    num_rows, num_drafts, num_words = 200, 6, 12
    width = 1 + num_drafts
    logits = random.normal(scale=2, size=(num_rows, width, num_words)).astype(np.float32)
    tokens = random.integers(0, num_words, (num_rows, num_drafts)).astype(np.int32)
    parents = np.stack([random.integers(0, 1 + j, num_rows) for j in range(num_drafts)], axis=1).astype(np.int32)
    num = random.integers(0, num_drafts + 1, num_rows).astype(np.int32)
    batch = jax.tree.map(lambda x: jnp.repeat(x, num_rows * width), make_batch([{"temperature": 0.8}]))
    drawn = random.integers(0, num_words, num_rows * width).astype(np.int32)
    drafts = Drafts(jnp.asarray(tokens), jnp.asarray(num), jnp.asarray(parents))
    flat, positions = jnp.asarray(logits.reshape(-1, num_words)), jnp.zeros(num_rows * width, jnp.int32)
    found = rule.choose(at_once, flat, batch, positions, drafts, jnp.asarray(drawn)).reshape(num_rows, width)
    num_paths = 0
    for row in range(num_rows):
        laws = [law(z, temperature=0.8) for z in logits[row]]
        least = [min(0.2, 0.6 * np.exp(np.sum(p * np.log(p)))) for p in laws]
        lengths, best = [0] * width, dict[int, tuple[int, float, int]]()
        for j in range(num_drafts - 1, -1, -1):
            node, token = int(parents[row, j]), int(tokens[row, j])
            chance = laws[node][token]
            if j < num[row] and chance > least[node]:
                key = (1 + lengths[1 + j], chance, token)
                if node not in best or key[:2] > best[node][:2]:
                    best[node], lengths[node] = key, key[0]
        wanted = [best[node][2] if node in best else drawn[row * width + node] for node in range(width)]
        num_paths += len(best)
        assert found[row].tolist() == wanted
    assert num_paths > 50
