"""Ten thousand steps of a random mixed load compile nothing; `scripts/prove frozen` does the same with a real model."""

import jax
import numpy as np
import pytest

from tests.support.engines import SMALL, tiny_engine
from tests.support.random_load import Compilations, RandomLoad

pytestmark = pytest.mark.optimized


def test_ten_thousand_steps_compile_nothing():
    llm = tiny_engine("llama3", buckets="8 32x8", seed=1)  # frozen: no other test shares it
    llm.warm_up(use_tqdm=False)
    programs = {"fork", "set_edits", "set_mask", *map(str, llm.parts.buckets.all())}
    assert dict(llm.parts.runner.traces) == dict.fromkeys(programs, 1)
    load = RandomLoad(llm, max_prompt_len=40, max_output_len=80)
    with Compilations() as heard:
        jax.jit(lambda x: x * 5 + 2)(np.arange(7))
        assert heard.count == 1, "control: a compilation is heard"
        load.run(10_000)
    assert heard.count == 1
    assert dict(llm.parts.runner.traces) == dict.fromkeys(programs, 1)
    assert load.buckets.keys() == {str(b) for b in llm.parts.buckets.all()}
    assert min(load.num_aborted, load.num_rounds - load.num_steps) > 100
    assert llm.stats.num_pages_free == SMALL["num_pages"] - 1
