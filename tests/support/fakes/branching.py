"""Requests whose tokens a random host chooses among the candidates, on engines with the fake runner."""

from functools import reduce

import numpy as np

from jaxserve.core.device_ops import Forks
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.core.step_plan import StepPlan
from jaxserve.engine.loop.engine import Engine
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, extend_prefix
from tests.support.fakes.fake_engine import MODEL
from tests.support.fakes.scheduler_laws import Watch

NUM_CANDIDATES = 5


class Host:
    """Extends one request's beams by random choices, and checks their candidates and tokens.

    num_forks: forks; num_partial of them from a text that ends within a page. num_grown: tokens chosen.
    """

    def __init__(self, engine: Engine, request: Request, width: int, seed: int):
        self.engine, self.request, self.width = engine, request, width
        self.random = np.random.default_rng(seed)
        self.beams = engine.scheduler.add_beams(request, width, NUM_CANDIDATES)[:1]
        self.texts = [request.prompt_token_ids.tolist()]
        self.num_partial = self.num_forks = self.num_grown = 0
        self.has_ended = False

    def advance(self) -> bool:
        """Choose tokens if all candidates are known, and return whether they are; the last choice ends the request."""
        scheduler = self.engine.scheduler
        found = [scheduler.candidates(beam) for beam in self.beams]
        if any(candidates is None for candidates in found):
            return False
        for beam, text, candidates in zip(self.beams, self.texts, found, strict=True):
            assert beam.tokens.tolist() == text
            ids, logprobs = naive_candidates(text)
            assert candidates.top_ids.tolist() == ids
            np.testing.assert_array_equal(candidates.top, logprobs)
        length = len(self.texts[0])
        if length == len(self.request.prompt_token_ids) + self.request.max_tokens - 1:
            scheduler.abort(self.request.request_id)
            self.has_ended = True
            return True
        parents = self.random.integers(0, len(self.beams), self.random.integers(1, self.width + 1)).tolist()
        choices = [(i, int(found[i].top_ids[self.random.integers(NUM_CANDIDATES)])) for i in parents]
        self._count(length, len(choices), len(set(parents)))
        self.beams = scheduler.branch(self.request.request_id, [(self.beams[i], token) for i, token in choices])
        self.texts = [[*self.texts[i], token] for i, token in choices]
        return True

    def _count(self, length: int, num_choices: int, num_parents: int) -> None:
        self.num_forks += num_choices - num_parents
        self.num_grown += num_choices
        if length % self.engine.scheduler.state.groups.page_size:
            self.num_partial += num_choices - num_parents


class CopyWatch(Watch):
    """A `Watch` that also counts the pages that forks copy."""

    num_copies = 0

    def submit(self, plan: StepPlan) -> int:
        self.num_copies += sum(len(forks.src_pages) for forks in plan.ops_of(Forks))
        return super().submit(plan)


def run(engine: Engine, hosts: list[Host], watch: Watch, others: list[Sequence] | None = None) -> None:
    """Step until all hosts and other sequences have ended."""
    others = others or []
    for _ in range(10_000):
        if all(host.has_ended for host in hosts) and all(other.is_finished for other in others):
            break
        engine.step()
        watch.check()
        for host in hosts:
            if not host.has_ended and host.advance():
                watch.check()
    else:
        raise AssertionError("a request never ends")
    for _ in engine.drain():
        watch.check()


def naive_candidates(tokens: list[int]) -> tuple[list[int], np.ndarray]:
    """The likeliest tokens after these, with their log-probabilities."""
    logprobs = MODEL.logprobs(reduce(extend_prefix, tokens, EMPTY_PREFIX)).astype(np.float32)
    ids = np.argsort(-logprobs, kind="stable")[:NUM_CANDIDATES]
    return ids.tolist(), logprobs[ids]
