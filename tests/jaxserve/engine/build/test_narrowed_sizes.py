"""Where memory is scarce, sizes that the user left open become smaller; those that the user chose stay."""

from dataclasses import replace

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.engine_sizes import narrowed, resolve
from jaxserve.engine.build.engine_spec import make_spec
from jaxserve.engine.build.kv_pool_size import MemoryBudget
from tests.support.tiny_engines import tiny_engine

MEMORY = MemoryBudget(platform="gpu", limit_bytes=0, weight_bytes=0, state_bytes=0, step_bytes=0)


def sizes(num_tokens, **options):
    """(rows, page size) of an engine whose pool has room for so many positions, of one byte each."""
    asked = config = EngineConfig.create("m", memory_utilization=1.0, **options)
    memory = replace(MEMORY, limit_bytes=num_tokens)
    while config is not None:
        size = config.page_size or 64
        groups = KVGroups((None,), size)
        limits = resolve(config, max_position=32768, groups=groups, page_bytes=size, memory=memory)
        config = narrowed(asked, limits, groups, memory)
    return limits.max_num_seqs, limits.page_size


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [
        (10**6, (256, 64)),
        (200_000, (256, 64)),  # 781 positions a sequence, in 12 pages
        (100_000, (256, 32)),  # 390: 6 pages of 64 would be half empty at their end
        (66_000, (256, 32)),
        (60_000, (128, 32)),
        (3_000, (8, 32)),
        (1_000, (8, 16)),  # no further
    ],
)
def test_fewer_sequences_and_smaller_pages_where_the_pool_is_small(num_tokens, expected):
    assert sizes(num_tokens) == expected


def test_sizes_that_the_user_chose_stay():
    assert sizes(3_000, max_num_seqs=256) == (256, 16)
    assert sizes(3_000, page_size=64) == (8, 64)
    assert sizes(3_000, max_num_seqs=256, page_size=64) == (256, 64)
    assert sizes(200_000, max_model_len=128) == (256, 64)  # all the pages that 256 sequences can use


def test_a_pool_that_the_user_chose_changes_nothing():
    groups = KVGroups((None,), 64)
    config = EngineConfig.create("m", num_pages=20)
    limits = resolve(config, max_position=32768, groups=groups, page_bytes=64, memory=MEMORY)
    assert limits.max_num_seqs == 256
    assert narrowed(config, limits, groups, MEMORY) is None


def test_steps_that_leave_nothing_for_kv_have_fewer_rows():
    model, mesh = tiny_engine("llama3").parts.described, make_mesh(1)
    config = EngineConfig.create("m", dtype="float32", memory_utilization=1.0)
    whole = make_spec(config, model, mesh, limit_bytes=10**9)
    memory = whole.memory
    assert whole.sizes.max_num_seqs == 32
    scarce = memory.weight_bytes + memory.state_bytes + memory.step_bytes
    narrow = make_spec(config, model, mesh, limit_bytes=scarce)
    assert 8 <= narrow.sizes.max_num_seqs < 32
    assert narrow.memory.state_bytes < memory.state_bytes
    with pytest.raises(ConfigError, match="leaves nothing for KV"):
        make_spec(
            EngineConfig.create("m", dtype="float32", memory_utilization=1.0, max_num_seqs=32), model, mesh, scarce
        )
    with pytest.raises(ConfigError, match="leaves nothing for KV"):
        make_spec(config, model, mesh, memory.weight_bytes)
