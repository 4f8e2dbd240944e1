import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.sampling.seeded_random import TOKEN, next_words, row_words, uniforms
from tests.jaxserve.sampling.rows import make_batch, p_value

POSITION = jnp.int32(7)


def numbers(rows, positions=None, purpose=TOKEN):
    positions = jnp.full(len(rows), POSITION) if positions is None else jnp.asarray(positions, jnp.int32)
    return np.stack(uniforms(jax.jit(row_words, static_argnums=2)(make_batch(rows), positions, purpose)))


def test_a_number_is_the_same_alone_and_among_others():
    rows = [{"seed_low": i * 17, "seed_high": i, "sample_index": i % 3} for i in range(9)]
    together = numbers(rows)
    order = [4, 0, 8, 2]
    assert (numbers([rows[i] for i in order]) == together[:, order]).all()
    assert (numbers([rows[5]]) == together[:, [5]]).all()


def test_every_ingredient_of_the_key_changes_both_numbers():
    base = {"seed_low": 3, "seed_high": 4, "sample_index": 1}
    variants = [base, *({**base, name: base[name] + 1} for name in base)]
    seen = [*numbers(variants).T, numbers([base], [8])[:, 0], numbers([base], purpose=TOKEN + 1)[:, 0]]
    assert len({x for pair in seen for x in pair.tolist()}) == 2 * len(seen)


def test_what_does_not_belong_to_the_key_changes_nothing():
    plain = numbers([{"seed_low": 5}])
    assert (numbers([{"seed_low": 5, "slot": 9, "top_k": 3, "temperature": 0.3}]) == plain).all()


@pytest.mark.parametrize("partitionable", [True, False])
def test_the_numbers_are_pinned_whatever_jax_is_configured_to(partitionable):
    with jax.threefry_partitionable(partitionable):
        first, second = numbers([{"seed_low": 1, "seed_high": 2}])
    # A changed number would change every seeded text that users have kept.
    np.testing.assert_array_equal([first[0], second[0]], np.float32([0.7439271211624146, 0.3626171350479126]))


def test_numbers_are_uniform_below_one_and_pairs_independent():
    batch = make_batch([{}])
    batch = jax.tree.map(lambda x: jnp.repeat(x, 20000), batch)
    batch = dataclasses.replace(batch, seed_low=jnp.arange(20000, dtype=jnp.uint32))
    words = row_words(batch, jnp.full(20000, POSITION), TOKEN)
    here, later = np.stack(uniforms(words)), np.stack(uniforms(next_words(words)))
    there = np.stack(uniforms(row_words(batch, jnp.full(20000, POSITION + 1), TOKEN)))
    assert here.min() >= 0
    assert here.max() < 1

    def cell(u):
        return (u * 8).astype(int)

    within, adjacent = ([here[0], here[1]], [later[0], later[1]]), [here[0][:-1], here[0][1:]]
    for pair in (*within, [here[0], there[0]], [here[1], there[0]], [here[0], later[0]], [here[1], later[1]], adjacent):
        assert p_value(cell(pair[0]) * 8 + cell(pair[1]), np.full(64, 1 / 64)) > 1e-4
    assert p_value(cell(here[0] ** 1.1) * 8 + cell(here[1]), np.full(64, 1 / 64)) < 1e-6
