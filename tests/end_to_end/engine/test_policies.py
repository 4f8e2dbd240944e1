"""A request's tokens do not depend on the scheduling policy, although it changes preemption."""

import pytest

from jaxserve import SamplingParams
from jaxserve.scheduler.policy.policies import POLICY_CLASSES
from tests.support.golden_data import goldens
from tests.support.tiny_engines import tiny_engine

GOLDENS = goldens("llama3") * 4
PARAMS = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


@pytest.mark.parametrize("policy", POLICY_CLASSES)
def test_tokens_are_those_of_transformers_in_every_order(policy):
    llm = tiny_engine("llama3", scheduling_policy=policy, num_pages=17, max_num_seqs=8)
    options = {"priority": [i % 3 for i in range(len(GOLDENS))], "tenant": ["ab"[i > 1] for i in range(len(GOLDENS))]}
    options = {name: value for name, value in options.items() if name in POLICY_CLASSES[policy].fields}
    outputs = llm.generate([g.prompt for g in GOLDENS], PARAMS, use_tqdm=False, **options)
    assert [output.outputs[0].token_ids for output in outputs] == [g.greedy[:24] for g in GOLDENS]
    assert llm.stats.num_preemptions > 0
