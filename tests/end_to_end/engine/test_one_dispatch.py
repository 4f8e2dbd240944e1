"""A step is one transfer in, one call of one executable, one transfer out, whatever options its rows have."""

from collections import Counter
from contextlib import contextmanager
from unittest.mock import patch

import jax
import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import EngineDeadError
from jaxserve.runner import runner as runner_module
from tests.support.golden_data import goldens
from tests.support.tiny_engines import drain, driven, submit, tiny_engine

PROMPT = goldens("llama3")[1].prompt
CASES = {
    "greedy": {"temperature": 0},
    "drawn": {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.02},
    "log-probabilities": {"logprobs": 5, "prompt_logprobs": 2},
    "penalties": {"presence_penalty": 0.5, "repetition_penalty": 1.2},
}


@contextmanager
def counted(llm):
    """Counts the calls of each executable."""
    calls, executables = Counter(), llm.parts.runner._executables.by_name
    before = dict(executables)

    def counting(name, execute):
        return lambda *args: calls.update([name]) or execute(*args)

    executables.update({name: counting(name, execute) for name, execute in before.items()})
    try:
        yield calls
    finally:
        executables.update(before)


def run(llm, fields):
    submit(llm, PROMPT, SamplingParams(max_tokens=6, ignore_eos=True, **fields))
    drain(llm)


@pytest.fixture(scope="module")
def llm():
    llm = tiny_engine("llama3")
    run(llm, CASES["greedy"])  # compiles the executables of all cases
    return llm


@pytest.mark.parametrize("fields", CASES)
def test_a_step_calls_one_executable_once(llm, fields):
    reads, known = llm.stats.num_reads, set(llm.parts.runner.executables)
    with counted(llm) as calls, driven(llm, 1, is_overlapped=True) as planned:
        run(llm, CASES[fields])
    assert calls.total() == len(planned) == llm.stats.num_reads - reads == 6
    assert set(calls) == {str(bucket) for bucket in llm.parts.spec.buckets.all()}
    assert set(llm.parts.runner.executables) == known


def test_the_buffer_is_all_that_goes_to_the_device(llm):
    """The guard rejects implicit transfers; here only the buffer is transferred explicitly."""

    def handed_over(*args, **kwargs):
        return jax.device_put(pack(*args, **kwargs), llm.parts.runner.programs.step(bucket).args[2].sharding)

    pack, bucket = runner_module.pack, llm.parts.spec.buckets.all()[0]
    with patch.object(runner_module, "pack", handed_over), jax.transfer_guard_host_to_device("disallow"):
        for fields in CASES.values():
            run(llm, fields)


def test_the_guard_sees_the_buffer():
    """Control: the same steps without the explicit transfer."""
    llm = tiny_engine("llama3", max_logprobs=19)
    with jax.transfer_guard_host_to_device("disallow"), pytest.raises(EngineDeadError, match="transfer"):
        run(llm, CASES["greedy"])
