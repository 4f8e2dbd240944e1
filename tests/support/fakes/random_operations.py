"""Random operations on an engine with the fake runner; afterwards every output is that of a lone run."""

from collections import Counter

import numpy as np

from jaxserve.core.buckets import MAX_ROUNDS, Bucket
from jaxserve.core.options.lora_request import Adapter, AdapterFailure
from jaxserve.core.options.scheduling_options import DEFAULT_SCHEDULING, SchedulingOptions
from jaxserve.core.sequence import Sequence
from jaxserve.engine.loop.engine import Engine
from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.scheduler.costs.draft_options import DraftPlan
from jaxserve.scheduler.queue_limits import QueueLoad
from tests.support.fakes.fake_adapters import UNREADABLE
from tests.support.fakes.fake_engine import (
    MODEL,
    SimulatedClock,
    base_of,
    make_request,
    naive,
    naive_logprobs,
    naive_pooled,
)
from tests.support.fakes.scheduler_laws import Watch

TENANTS = ("a", "a", "a", "b", "c")


class RandomRounds:
    """Replaces `MultiStepBudget` and `HiddenRounds`: one round, several, or the most, at random."""

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)

    @property
    def num_rounds(self) -> int:
        return int(self._random.choice([1, 2, 5, MAX_ROUNDS]))

    @property
    def hidden(self) -> "RandomRounds":
        return self

    def plan(self, bucket: Bucket) -> None:
        assert bucket.num_rows

    def observe(self, *_: object, **__: object) -> None:
        """Nothing is learned."""


class RandomDrafts:
    """Replaces `Speculation`: no drafts in some steps, in others drafts of some rows, in a bucket of any width."""

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)

    def choose(self, step_id, slot_table, slots, may_draft, decode, verify) -> DraftPlan | None:
        if not verify or self._random.random() < 0.2:
            return None
        bucket = verify[self._random.integers(len(verify))]
        drafts = self._random.integers(0, bucket.max_drafts + 1, len(slots))
        max_drafts = np.where(may_draft, drafts, 0).astype(np.int32)
        proposers = self._random.integers(0, 2, len(slots)).astype(np.int32)
        return DraftPlan(bucket, max_drafts, bool(self._random.integers(2)), proposers) if max_drafts.any() else None

    def observe(self, plan, outcome, device_s) -> None:
        assert (outcome.drafts is not None) == plan.bucket.is_verify


class Fuzz:
    """Random requests, aborts and ends between steps; afterwards every output is compared with the naive loop."""

    def __init__(
        self,
        engine: Engine,
        seed: int,
        *,
        abort_share: float = 0.5,
        longest: int = 30,
        max_operations_a_step: int = 4,
        max_quiet_steps: int = 1,
        model: FakeModel = MODEL,
        is_ample: bool = False,
    ):
        self.engine, self.model = engine, model
        self.clock = engine.clock = SimulatedClock()
        engine.multi_step, state = RandomRounds(seed), engine.scheduler.state
        if state.speculation is not None:
            state.speculation = RandomDrafts(seed)
        self.longest, self.abort_share, self.max_operations_a_step = longest, abort_share, max_operations_a_step
        self.max_quiet_steps = max_quiet_steps
        self.random = np.random.default_rng(seed)
        self.watch = Watch(engine, is_ample=is_ample)
        self.added: list[list[Sequence]] = []
        self.counts: Counter[str] = Counter()

    @property
    def num_operations(self) -> int:
        return self.counts.total() + self.watch.num_forks + self.engine.scheduler.stats.num_preemptions

    def run(self, num_operations: int) -> None:
        while self.num_operations < num_operations:
            for _ in range(self.random.integers(0, self.max_operations_a_step + 1)):
                self._operate()
                self.watch.check()
            for _ in range(self.random.integers(1, self.max_quiet_steps + 1)):
                self.engine.step()
                self.clock.now_s += 1
                self.watch.check()
        for _ in self.engine.drain():
            self.watch.check()

    def check_outputs(self) -> None:
        for sequence in (sequence for sequences in self.added for sequence in sequences):
            assert sequence.is_finished
            max_model_len = self.engine.scheduler.state.limits.max_model_len
            if isinstance(sequence.stop_reason, AdapterFailure):
                assert sequence.request.adapter.request.lora_path.startswith(UNREADABLE)
                assert (sequence.token_ids, sequence.finish_reason) == ([], "error"), sequence
                continue
            expected, reason = naive(sequence.request, sequence.index, model=self.model, max_model_len=max_model_len)
            if sequence.finish_reason in ("abort", "cut", "timeout"):
                assert sequence.token_ids == expected[: len(sequence.token_ids)], sequence
            else:
                assert (sequence.token_ids, sequence.finish_reason) == (expected, reason), sequence
                self._check_prompt_results(sequence)

    def _check_prompt_results(self, sequence: Sequence) -> None:
        request = sequence.request
        if sequence.prompt_logprobs is not None and sequence.finish_reason != "error":
            start = max(1, request.logprobs_start)
            entries = sequence.prompt_logprobs[start:]
            assert None not in entries, "a log-probability is missing"
            assert sequence.prompt_logprobs[:start] == [None] * start
            expected = naive_logprobs(request.prompt_token_ids.tolist(), start, model=self.model, base=base_of(request))
            assert np.allclose([entry.logprob for entry in entries], expected)
        if request.pooling is not None:
            assert np.allclose(sequence.pooled, naive_pooled(request, model=self.model), rtol=1e-5)

    def _operate(self) -> None:
        draw = self.random.random()
        if draw > self.abort_share:
            if QueueLoad.of(self.engine.scheduler.state).num_waiting < 12:
                self._add()
        elif draw < 0.01 and self.engine.scheduler.state.prefix_cache is not None:
            self.counts["reset"] += 1
            self.engine.scheduler.state.prefix_cache.clear()
        elif draw > self.abort_share / 2:
            self.counts["abort"] += 1
            recent = self.random.integers(max(0, len(self.added) - 8), len(self.added) + 1)
            self.engine.scheduler.abort(str(recent))  # running, waiting, ended, or unknown
        elif self.added:
            self.counts["finish"] += 1
            sequence = self._recent_sequence()
            keep = int(self.random.integers(0, len(sequence.token_ids) + 1))
            self.engine.scheduler.finish(sequence.sequence_id, "cut", keep)

    def _add(self) -> None:
        self.counts["add"] += 1
        draw = self.random
        if draw.random() < 0.25:
            self._add_sharing()
            return
        max_tokens = int(draw.integers(1, self.longest))
        special = draw.random() < 0.2
        params = {
            "n": int(draw.choice([1, 1, 1, 2, 5])),
            "min_tokens": int(draw.integers(0, max_tokens + 1)) if special else 0,
            "bad_words": ((5,), (7, 8), (9, 3, 4)) if special and draw.random() < 0.5 else (),
            "allowed_token_ids": range(40 - int(8 * draw.random())) if special and draw.random() < 0.5 else None,
            "ignore_eos": bool(special and draw.random() < 0.2),
        }
        if self.engine.scheduler.state.constraints is not None and draw.random() < 0.6:
            params["structured_outputs"] = {"regex": f"grammar {draw.integers(6)}"}
        number = len(self.added)
        prompt, salt = int(draw.integers(1, self.longest)), None
        if self.engine.scheduler.state.prefix_cache is not None and self.added and draw.random() < 0.7:
            prompt, salt = self._continuation(), str(draw.choice(["a", "b"])) if draw.random() < 0.1 else None
            params["skip_reading_prefix_cache"] = bool(draw.random() < 0.1)
        if self.engine.scheduler.state.limits.kv_policy is not None and draw.random() < 0.6:
            max_tokens = int(draw.integers(1, 4 * self.longest))
            params |= {"has_kv_policy": True, "min_tokens": min(params["min_tokens"], max_tokens)}
        params |= {"arrival_s": self.clock.now_s, "scheduling": self._scheduling()}
        request = make_request(
            str(number), prompt, max_tokens, seed=number, cache_salt=salt, adapter=self._adapter(), **params
        )
        self.added.append(self.engine.add(request))

    def _add_sharing(self) -> None:
        """Requests of several kinds with a shared prefix."""
        draw, number = self.random, len(self.added)
        shared = draw.integers(1, MODEL.vocab_size, draw.integers(1, self.longest)).tolist()
        shared_len = int(draw.integers(1, len(shared) + 1))
        kinds = {
            "score": {"max_tokens": 0, "logprobs_start": shared_len, "prompt_logprobs": 0},
            "whole prompt": {"max_tokens": 0, "prompt_logprobs": 1},
            "mean": {"max_tokens": 0, "pooling": "mean"},
            "last": {"max_tokens": 0, "pooling": "last"},
            "text": {"max_tokens": 3},
            "texts": {"max_tokens": 5, "n": 2, "prompt_logprobs": 0, "logprobs_start": shared_len},
        }
        own_kind = str(draw.choice(list(kinds)))
        requests, adapter = [], self._adapter()
        for k in range(draw.integers(1, 12)):
            kind = own_kind if draw.random() < 0.8 else str(draw.choice(list(kinds)))
            prompt = shared + draw.integers(1, MODEL.vocab_size, draw.integers(0, 9)).tolist()
            name = f"{number}.{k}" if k else str(number)
            own = kinds[kind] | {"arrival_s": self.clock.now_s, "scheduling": self._scheduling()}
            requests.append(make_request(name, prompt, seed=1000 * number + k, adapter=adapter, **own))
        self.counts["add"] += len(requests) - 1
        self.added.append(self.engine.scheduler.add_sharing(requests, shared_len))

    def _adapter(self) -> Adapter | None:
        """None, one that cannot be read, one of three that are popular, or any."""
        if self.engine.scheduler.state.adapters is None or (draw := self.random.random()) < 0.2:
            return None
        known = list(self.engine.scheduler.state.adapters.gate._source.adapters.values())
        if draw > 0.95:
            return known[0]
        first = max(1, len(known) - 3) if draw > 0.6 else 1
        return known[self.random.integers(first, len(known))]

    def _scheduling(self) -> SchedulingOptions:
        """Random values of the fields that the policy uses, and time limits if it uses any."""
        draw, fields = self.random, self.engine.scheduler.state.policy.fields
        if not fields:
            return DEFAULT_SCHEDULING
        return SchedulingOptions(
            priority=int(draw.choice([0, 0, 1, -2, 7])),
            tenant=str(draw.choice(TENANTS)) if "tenant" in fields and draw.random() < 0.8 else None,
            queue_timeout_s=float(draw.integers(1, 60)) if draw.random() < 0.2 else None,
            deadline_s=float(draw.integers(1, 60)) if draw.random() < 0.2 else None,
        )

    def _continuation(self) -> list[int]:
        """A prefix of a recent sequence, and other tokens after it."""
        tokens = self._recent_sequence().tokens.tolist()
        num_kept = int(self.random.integers(0, min(len(tokens), self.longest) + 1))
        return tokens[:num_kept] + self.random.integers(1, MODEL.vocab_size, self.random.integers(1, 9)).tolist()

    def _recent_sequence(self) -> Sequence:
        sequences = self.added[self.random.integers(max(0, len(self.added) - 8), len(self.added))]
        return sequences[self.random.integers(len(sequences))]
