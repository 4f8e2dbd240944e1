"""1,500 steps of a random mixed load compile nothing; `scripts/prove frozen` runs 10,000 of a real model."""

import jax
import numpy as np
import pytest

from tests.support.random_load import Compilations, RandomLoad
from tests.support.tiny_engines import SMALL, tiny_engine

pytestmark = pytest.mark.optimized


def test_fifteen_hundred_steps_compile_nothing():
    tiny_engine("llama3", buckets="8 32x8", seed=1).warm_up(use_tqdm=False)  # frozen: no other test shares it
    llm = tiny_engine("llama3", buckets="8 32x8", seed=1, prefix_eviction="hits")
    programs = {"fork", "set_edits", "set_mask", "set_counts", *map(str, llm.parts.spec.buckets.all())}
    assert dict(llm.parts.runner.programs.traces) == dict.fromkeys(programs, 1)
    load = RandomLoad(llm, max_prompt_len=40, max_output_len=80)
    with Compilations() as heard:
        jax.jit(lambda x: x * 5 + 2)(np.arange(7))
        assert heard.count == 1, "control: a compilation is heard"
        load.run(1_500)
    assert heard.count == 1
    assert dict(llm.parts.runner.programs.traces) == dict.fromkeys(programs, 1)
    assert load.buckets.keys() == {str(b) for b in llm.parts.spec.buckets.all()}
    assert min(load.num_aborted, load.num_rounds - load.num_steps) > 20
    assert llm.stats.num_cached_tokens > 300
    assert llm.stats.num_pages_free + llm.stats.num_pages_cached == SMALL["num_pages"] - 1
