"""A call with many prompts takes the room of one: others are served in between, and none of it is refused half-way."""

import asyncio
import random

import pytest

from jaxserve import AsyncLLM, SamplingParams
from jaxserve.core.errors import AbortedError, EngineDeadError, LateError, QueueFullError
from jaxserve.scheduler.queue_limits import QueueLimits
from tests.support.fakes.async_llm import held, run, until
from tests.support.fakes.fake_engine import SimulatedClock
from tests.support.fakes.fake_llm import fake_llm

SHORT = SamplingParams(max_tokens=3, ignore_eos=True)


async def outputs_of(results):
    """The outputs by index; every prompt ends once."""
    found = {}
    while results.has_more:
        index, output = await results.next_indexed()
        assert output.finished
        assert index not in found
        found[index] = output
    return [found[index] for index in sorted(found)]


def watch(llm, see):
    """Call `see` with the scheduler's state before every step is planned."""
    scheduler = llm.parts.engine.scheduler
    schedule = scheduler.schedule

    def seen(*args):
        see(scheduler.state)
        return schedule(*args)

    scheduler.schedule = seen


@pytest.mark.parametrize("seed", range(6))
def test_every_prompt_is_answered_as_alone_while_the_queue_keeps_its_limit(seed):
    """Calls of random sizes at once. Of each, no more waits than one prompt, but for the slots that are free."""
    rng = random.Random(seed)
    num_seqs, n, max_num_waiting = rng.randint(1, 8), rng.randint(1, 3), rng.choice([0, 1, 3, 20, None])
    if max_num_waiting is not None:
        max_num_waiting = max(max_num_waiting, 3 * n)  # room for the three calls
    policy = rng.choice(["fcfs", "priority", "fair"])
    params = SamplingParams(n=n, max_tokens=rng.randint(1, 4), ignore_eos=True)
    calls = [[[rng.randrange(256)] * rng.randint(1, 20) for _ in range(rng.randint(1, 90))] for _ in range(3)]
    llm = fake_llm(max_num_seqs=num_seqs, policy=policy, queue_limits=QueueLimits(max_num_waiting=max_num_waiting))
    excess = []
    watch(llm, lambda state: excess.append(len(state.waiting) - len(state.slot_table.free_slots)))

    async def main(served):
        asked = [await served.client.generate(prompts, params, wants_pieces=False) for prompts in calls]
        return await asyncio.gather(*map(outputs_of, asked))

    found = run(llm, main)
    expected = iter(fake_llm().generate([ids for prompts in calls for ids in prompts], params, use_tqdm=False))
    for prompts, outputs in zip(calls, found, strict=True):
        assert len(outputs) == len(prompts)
        for output, alone in zip(outputs, expected, strict=False):
            assert output.request_id == alone.request_id
            assert output.prompt_token_ids == alone.prompt_token_ids
            assert [c.token_ids for c in output.outputs] == [c.token_ids for c in alone.outputs]
    assert max(excess) <= len(calls) * n


@pytest.mark.parametrize("policy", ["fcfs", "priority", "fair"])
def test_requests_of_others_come_in_between(policy):
    llm = fake_llm(max_num_seqs=4, policy=policy, queue_limits=QueueLimits(max_num_waiting=2))

    async def main(served):
        many = await served.client.generate([[i % 250] * 9 for i in range(1000)], SHORT, wants_pieces=False)
        for _ in range(20):
            await many.next()
        num_done, meters = 20, served.meters
        assert meters.num_waiting > 900
        for _ in range(5):
            single = asyncio.create_task(served.generate("hello", SHORT))
            while not single.done():
                await many.next()
                num_done += 1
            assert (await single).finished
        assert num_done <= 20 + 5 * 12  # those in four slots, their successors, and those read while the task starts
        many.abort()
        await until(lambda: not served.health().has_work)
        assert meters.finished.total() == 1005
        assert meters.finished["abort"] == 1005 - meters.finished["length"] > 800

    run(llm, main)


def test_tokens_that_wait_are_limited_by_the_longest_prompt():
    llm = fake_llm(max_num_seqs=4, queue_limits=QueueLimits(max_waiting_tokens=100))
    waiting = []
    watch(llm, lambda state: waiting.append(state.waiting.num_tokens))

    async def main(served):
        many = await served.client.generate([[1] * (60 - i) for i in range(50)], SHORT, wants_pieces=False)
        with pytest.raises(QueueFullError):
            await served.submit([1] * 41, SHORT, wants_pieces=False)
        single = await served.submit([1] * 40, SHORT, wants_pieces=False)
        assert len(await outputs_of(many)) == 50
        assert (await single.next()).finished

    run(llm, main)
    assert 60 <= max(waiting) <= 100


def test_what_is_late_ends_at_once_though_it_has_not_joined_the_queue():
    clock = SimulatedClock()
    llm = fake_llm(max_num_seqs=1, clock=clock)

    async def main(served):
        limits = [5.0] * 100 + [None] * 3
        with held(llm) as is_waiting:
            first = await served.submit([1], SamplingParams(max_tokens=60, ignore_eos=True), wants_pieces=False)
            await until(is_waiting.is_set)
            many = await served.client.generate([[2]] * 103, SHORT, wants_pieces=False, queue_timeout_s=limits)
            texts = asyncio.create_task(served.client.embed([[3]] * 9, deadline_s=5.0))
            await asyncio.sleep(0)
            clock.now_s = 6.0
        for _ in range(100):
            index, output = await many.next_indexed()
            assert (index < 100, output.outputs[0].finish_reason) == (True, "timeout")
            assert output.outputs[0].token_ids == []
        with pytest.raises(LateError):
            await texts
        assert (await first.next()).finished
        assert [(await many.next()).outputs[0].finish_reason for _ in range(3)] == ["length"] * 3

    run(llm, main)


def test_pieces_come_as_those_of_single_requests():
    async def main(served):
        results = await served.client.generate([[i] for i in range(60)], SHORT, wants_pieces=True)
        tokens = {}
        while results.has_more:
            index, piece = await results.next_indexed()
            tokens.setdefault(index, []).extend(piece.outputs[0].token_ids)
        return [tokens[index] for index in range(60)]

    expected = fake_llm().generate([[i] for i in range(60)], SHORT, use_tqdm=False)
    assert run(fake_llm(max_num_seqs=2), main) == [output.outputs[0].token_ids for output in expected]


def test_embeddings_are_those_of_single_requests():
    async def main(served):
        return await served.client.embed([[i, i] for i in range(100)])

    found = run(fake_llm(max_num_seqs=3, queue_limits=QueueLimits(max_num_waiting=0)), main)
    expected = fake_llm().embed([[i, i] for i in range(100)], use_tqdm=False)
    assert [each.outputs for each in found] == [each.outputs for each in expected]


def test_an_abort_before_anything_has_run_returns_all():
    llm = fake_llm(max_num_seqs=1, queue_limits=QueueLimits(max_num_waiting=1))

    async def main(served):
        with held(llm) as is_waiting:
            first = await served.submit([1], SHORT, wants_pieces=False)
            await until(is_waiting.is_set)
            many = await served.client.generate([[2]] * 500, SHORT, wants_pieces=False)
            many.abort()
            with pytest.raises(AbortedError):
                await many.next()
            other = await served.submit([3], SHORT, wants_pieces=False)
        assert (await first.next()).finished
        assert (await other.next()).finished
        assert (served.meters.finished, served.meters.num_unseen) == ({"length": 2, "abort": 500}, 500)

    run(llm, main)


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_engine_that_ends_fails_what_has_not_joined_the_queue(is_closed):
    llm = fake_llm(max_num_seqs=1)

    def broken(ticket):
        raise RuntimeError("the device is gone")

    async def main():
        async with AsyncLLM.from_llm(llm) as served:
            with held(llm) as is_waiting:
                many = await served.client.generate([[2]] * 50, SHORT, wants_pieces=False)
                await until(is_waiting.is_set)
                if is_closed:
                    closing = asyncio.create_task(served.close())
                    await until(lambda: served.health().is_dead)
                else:
                    llm.parts.runner.submit = broken
            for _ in range(50):
                with pytest.raises(EngineDeadError, match="closed" if is_closed else "the device is gone"):
                    await many.next()
            assert not many.has_more
            if is_closed:
                await closing
            await until(lambda: (served.meters.num_waiting, served.meters.num_running) == (0, 0))

    asyncio.run(main())
