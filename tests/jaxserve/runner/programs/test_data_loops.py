import jax
import jax.numpy as jnp
from jax import lax

from jaxserve.runner.programs.data_loops import data_loops
from jaxserve.runner.programs.hlo import read_hlo


def loops(function, *args) -> int:
    return len(data_loops(read_hlo(jax.jit(function).lower(*args).compile().as_text())))


def halve(x):
    """A loop that ends by data."""
    return lax.while_loop(lambda x: x.sum() > 1, lambda x: jnp.sin(x) / 2, x)


def test_loops_that_end_by_data_are_told_from_those_that_count():
    x = jnp.ones(5)
    assert loops(lambda x: lax.fori_loop(0, 7, lambda i, x: jnp.sin(x) * i, x), x) == 0
    assert loops(halve, x) == 1
    assert loops(lambda x: lax.fori_loop(0, 7, lambda i, x: halve(x) + i, x), x) == 1


def test_those_of_an_option_do_not_count():
    def branch(x):
        return lax.cond(x[0] > 2, lambda x: halve(x) + 1, lambda x: x, x)

    x = jnp.ones(5)
    assert loops(branch, x) == 1
    assert loops(lambda x: lax.cond(x[1] > 3, branch, jnp.cos, x), x) == 0
