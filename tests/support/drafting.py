"""Engines whose rows draft whenever they may, and what their drafts came to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np

from jaxserve import LLM, SamplingParams
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.drafts.ngram_proposer import NgramProposer
from jaxserve.runner.drafts.proposer import DraftRows, Proposer
from jaxserve.scheduler.costs.draft_options import DraftPlan
from jaxserve.scheduler.speculation import Speculation
from tests.support.golden_data import goldens
from tests.support.tiny_engines import tiny_engine


class AlwaysDraft(Speculation):
    """Does not weigh times, which differ from run to run. Rows change their proposer from step to step, if the engine
    has several."""

    num_steps = 0

    def choose(self, step_id, slot_table, slots, may_draft, decode, verify) -> DraftPlan | None:
        if not verify or not may_draft.any():
            return None
        self.num_steps += 1
        max_drafts = np.where(may_draft, verify[-1].max_drafts, 0).astype(np.int32)
        proposers = ((slots + self.num_steps) % len(self._depths)).astype(np.int32)
        return DraftPlan(verify[-1], max_drafts, is_trial=False, proposers=proposers)

    def observe(self, plan, outcome, device_s) -> None:
        """Nothing is learned."""


class DraftInTurns(AlwaysDraft):
    """Every other step decodes."""

    def choose(self, step_id, slot_table, slots, may_draft, decode, verify) -> DraftPlan | None:
        plan = super().choose(step_id, slot_table, slots, may_draft, decode, verify)
        return plan if self.num_steps % 2 else None


def always(llm: LLM, choice: type[AlwaysDraft] = AlwaysDraft) -> LLM:
    """The engine, which drafts from now on in every step that has verify buckets, or as `choice` says."""
    assert llm.config.speculation is not None
    proposer = llm.parts.spec.programs.settings.proposer
    assert proposer is not None
    depths = [part.depth for part in proposer.parts]
    llm.parts.engine.scheduler.state.speculation = choice(llm.parts.spec.sizes.max_num_seqs, depths)
    return llm


def greedy_and_sampled(count: int) -> list[SamplingParams]:
    """Of texts of 40 tokens, the first half greedy, the others at temperature 0.8."""
    temperatures = [0.0] * (count - count // 2) + [0.8] * (count // 2)
    return [
        SamplingParams(temperature=temperature, seed=i, max_tokens=40, ignore_eos=True)
        for i, temperature in enumerate(temperatures)
    ]


@contextmanager
def counted(llm: LLM) -> Iterator[list[tuple[int, int]]]:
    """Yields the numbers of proposed and accepted drafts of each step."""
    seen: list[tuple[int, int]] = []

    def count(outcome: StepOutcome) -> None:
        if outcome.drafts is not None:
            seen.append((int(outcome.drafts.num_proposed.sum()), int(outcome.drafts.num_accepted.sum())))

    with watched(llm, count):
        yield seen


@contextmanager
def watched(llm: LLM, see: Callable[[StepOutcome], None]) -> Iterator[None]:
    """Shows what has come of each step."""
    collect = llm.parts.runner.collect

    def collect_and_show(ticket):
        outcome = collect(ticket)
        see(outcome)
        return outcome

    with patch.object(llm.parts.runner, "collect", collect_and_show):
        yield


@dataclass(frozen=True)
class AmongDecoys(Proposer):
    """Proposes binary trees: the n-gram drafts as nodes 2, 4, 6, ..., each after a sibling that will not be drawn.

    Every accepted draft has to be moved.
    """

    ngram: NgramProposer

    @property
    def makes_trees(self) -> bool:
        """See `Proposer`."""
        return True

    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """See `Proposer`."""
        _, drafts = self.ngram.propose(params, state, rows, num_drafts // 2)
        tokens, num = drafts.tokens, drafts.num
        other = (tokens + 1) % jnp.int32(64)  # within every tiny vocabulary
        nodes = jnp.stack([other, tokens], axis=2).reshape(len(num), -1)
        parents = jnp.repeat(2 * jnp.arange(num_drafts // 2, dtype=jnp.int32), 2)
        return state, Drafts(nodes, 2 * num, jnp.broadcast_to(parents, nodes.shape))


@contextmanager
def decoys() -> Iterator[None]:
    """Engines that are built here draft `AmongDecoys`."""
    of = NgramProposer.of
    with patch.object(NgramProposer, "of", lambda config: AmongDecoys(of(config))):
        yield


def draft_counts(llm):
    """Proposed and accepted drafts of texts, which are those without drafts."""
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    asked = [golden.prompt for golden in goldens("llama3")]
    with counted(llm) as seen:
        outputs = llm.generate(asked, params, use_tqdm=False)
    expected = tiny_engine("llama3").generate(asked, params, use_tqdm=False)
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in expected]
    return np.sum(seen, axis=0)
