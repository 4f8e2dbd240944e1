"""Copies of the pool are found in a program's text; writes into the pool are not reported."""

import jax
import jax.numpy as jnp
import pytest

from jaxserve.runner.programs.hlo import read_hlo
from jaxserve.runner.programs.pool_aliasing import pool_copies

POOL = jax.ShapeDtypeStruct((3, 40, 2, 16, 128), jnp.bfloat16)


def set_row(pool, page):
    return pool.at[1, page, 0, 3].set(1.0)


def set_layer(pool, page):
    return pool.at[1].set(pool[1] * 2)


def flipped(pool, page):
    return pool[:, ::-1]


def copies(function, *, donate: bool) -> list[str]:
    page = jax.ShapeDtypeStruct((), jnp.int32)
    compiled = jax.jit(function, donate_argnums=(0,) if donate else ()).lower(POOL, page).compile()
    memory = compiled.memory_analysis()
    return pool_copies(read_hlo(compiled.as_text()), POOL, memory.temp_size_in_bytes)


def test_what_is_written_into_the_donated_pool_is_no_copy():
    assert not copies(set_row, donate=True)


@pytest.mark.parametrize("function", [set_layer, flipped])
def test_a_new_pool_or_a_new_layer_is_found(function):
    assert copies(function, donate=True)


def test_a_pool_that_is_kept_in_addition_to_the_new_one_is_found():
    assert copies(set_row, donate=False)


KERNEL = """HloModule step

ENTRY %main (pool: bf16[3,40,2,16,128]) -> bf16[3840,128] {
  %pool = bf16[3,40,2,16,128]{4,3,2,1,0} parameter(0)
  %rows = bf16[3840,128]{1,0} bitcast(%pool)
  ROOT %kept = bf16[3840,128]{1,0} copy(%rows)
}
"""


@pytest.mark.parametrize(
    ("result", "num_copies"),
    [
        ("bf16[3840,128]", 1),
        ("bf16[1280,128]", 1),
        ("bf16[2,16,40,128]", 1),
        ("f32[3840,128]", 0),
        ("bf16[3839,128]", 0),
    ],
)
def test_a_copy_in_the_shape_in_which_a_kernel_reads_it_is_found(result, num_copies):
    text = KERNEL.replace("%kept = bf16[3840,128]", f"%kept = {result}")
    assert len(pool_copies(read_hlo(text), POOL, 0)) == num_copies


SCATTERED = """HloModule step

%into (pool: bf16[3,40,2,16,128], at: s32[4]) -> bf16[3,40,2,16,128] {
  %pool = bf16[3,40,2,16,128]{4,3,2,1,0} parameter(0)
  %at = s32[4]{0} parameter(1)
  ROOT %scattered = bf16[3,40,2,16,128]{4,3,2,1,0} scatter(%pool, %at), metadata={op_name="step/write"}
}

ENTRY %main (pool: bf16[3,40,2,16,128], at: s32[4]) -> bf16[3,40,2,16,128] {
  %pool = bf16[3,40,2,16,128]{4,3,2,1,0} parameter(0)
  %at = s32[4]{0} parameter(1)
  ROOT %out = bf16[3,40,2,16,128]{4,3,2,1,0} fusion(%pool, %at), calls=%into, metadata={op_name="step/write"}
}
"""


def test_a_scatter_is_trusted_only_where_no_memory_is_left_for_another_pool():
    """On TPU XLA scatters into a new array; on CPU and GPU it writes into the operand. The text is the same."""
    pool_bytes = 3 * 40 * 2 * 16 * 128 * 2
    assert not pool_copies(read_hlo(SCATTERED), POOL, pool_bytes - 1)
    assert pool_copies(read_hlo(SCATTERED), POOL, pool_bytes) == ["fusion %out of step/write"]
