"""The sizes of an engine: what the user set is kept or refused, the rest fits the memory."""

from dataclasses import replace

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.kv_policy_config import StreamingConfig
from jaxserve.engine.build.engine_sizes import resolve
from jaxserve.engine.build.kv_pool_size import MemoryBudget, longest_sequence
from jaxserve.kv.streaming_policy import StreamingPolicy
from jaxserve.scheduler.step_limits import StepLimits

GEMMA = KVGroups((512,) * 5 + (None,), 16)
LLAMA = KVGroups((None,), 16)
PAGE_BYTES = 1000


def memory(platform="gpu", limit=10**9, weights=10**8):
    return MemoryBudget(platform=platform, limit_bytes=limit, weight_bytes=weights, state_bytes=10**6, step_bytes=10**7)


def sizes_of(groups=LLAMA, mem=None, max_position=4096, **options):
    config = EngineConfig.create("m", **options)
    return resolve(config, max_position=max_position, groups=groups, page_bytes=PAGE_BYTES, memory=mem or memory())


@pytest.mark.parametrize("groups", [LLAMA, GEMMA])
@pytest.mark.parametrize("num_pages", [1, 7, 60, 300, 5000])
def test_longest_is_the_longest_that_fits(groups, num_pages):
    fits = longest_sequence(groups, num_pages, 4096, chunk=64)
    assert fits == 0 or groups.max_sequence_pages(fits, 64) <= num_pages
    assert fits == 4096 or groups.max_sequence_pages(fits + 1, 64) > num_pages


def test_the_pool_takes_what_memory_leaves_and_no_more_than_all_slots_can_use():
    left = int(0.92 * 5 * 10**7) - 10**7 - 10**6 - 10**7
    assert sizes_of(mem=memory(limit=5 * 10**7, weights=10**7)).num_pages == left // PAGE_BYTES
    assert sizes_of(max_num_seqs=2, max_model_len=64).num_pages == 1 + 2 * 4


def test_a_context_that_was_left_open_shrinks_to_the_pool():
    assert sizes_of(num_pages=11).max_model_len == 160
    with pytest.raises(ConfigError, match="at most 160"):
        sizes_of(num_pages=11, max_model_len=161)


@pytest.mark.parametrize("groups", [LLAMA, GEMMA])
@pytest.mark.parametrize("sizes", [{"max_num_seqs": 1}, {"num_pages": 180}, {"num_pages": 180, "max_num_seqs": 1}])
def test_sizes_that_were_left_open_leave_room_for_the_pages_of_the_kv_policy(groups, sizes):
    streaming = {"name": "streaming", "num_sinks": 4, "window": 60}
    found = sizes_of(groups, kv_policy=streaming, max_num_batched_tokens=64, **sizes)
    policy = StreamingPolicy(StreamingConfig(**streaming))
    limits = StepLimits(found.max_num_seqs, 64, found.max_chunk_tokens, found.max_model_len, 100, policy)
    limits.check_pages(groups, found.num_pages)
    if found.max_model_len < 4096:
        with pytest.raises(ConfigError, match="cannot hold one sequence"):
            replace(limits, max_model_len=found.max_model_len + 1).check_pages(groups, found.num_pages)
        with pytest.raises(ConfigError, match=f"at most {found.max_model_len}"):
            sizes_of(
                groups,
                kv_policy=streaming,
                max_num_batched_tokens=64,
                max_model_len=found.max_model_len + 1,
                **sizes,
            )


def test_a_context_beyond_the_model_is_refused():
    with pytest.raises(ConfigError, match="4096"):
        sizes_of(max_model_len=4097)


def test_a_model_that_fills_the_memory_is_refused_with_advice():
    with pytest.raises(ConfigError, match="tensor_parallel_size"):
        sizes_of(mem=memory(weights=10**9))


def test_fewer_tokens_than_rows_are_refused():
    with pytest.raises(ConfigError, match="max_num_batched_tokens"):
        sizes_of(max_num_seqs=64, max_num_batched_tokens=63)
