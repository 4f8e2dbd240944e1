"""`submit` admits or refuses at once, during any step, exactly up to the limits; requests may be left at any moment."""

import asyncio
import random
import threading

import pytest

from jaxserve import AsyncLLM, QueueFullError, SamplingParams
from jaxserve.core.errors import AbortedError, EngineDeadError, RequestError
from jaxserve.engine.outputs.output_stream import OutputStream
from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.scheduler.queue_limits import QueueLimits
from tests.support.fakes.async_llm import held, run, until
from tests.support.fakes.fake_llm import NUM_PAGES, Reciter, all_pages_are_back, fake_llm, num_pages_free

LONG = SamplingParams(max_tokens=80, ignore_eos=True)
SHORT = SamplingParams(max_tokens=4, ignore_eos=True)


async def first(llm, is_waiting, prompt=(1, 2)):
    """A request whose first step is awaited and does not end."""
    stream = await llm.submit(list(prompt), LONG, wants_pieces=False)
    await until(is_waiting.is_set)
    return stream


async def submitted(llm, prompts, params=SHORT):
    """For each prompt its `ResultStream`, or the exception."""
    asked = (llm.submit(prompt, params, wants_pieces=False) for prompt in prompts)
    return await asyncio.gather(*asked, return_exceptions=True)


def test_all_is_decided_while_a_step_is_in_flight():
    """No step ends before the block does: a call that waited for one would hang."""
    llm = fake_llm(max_num_seqs=2, queue_limits=QueueLimits(max_num_waiting=3))

    async def main(served):
        with held(llm) as is_waiting:
            started = await first(served, is_waiting)
            bad = [([999], SHORT, {}), ("", SHORT, {}), ("a", [SHORT], {}), ("a", SHORT, {"priority": 1})]
            for prompt, params, scheduling in bad:
                with pytest.raises(RequestError) as caught:
                    await served.submit(prompt, params, wants_pieces=True, **scheduling)
                assert not isinstance(caught.value, QueueFullError)
            with pytest.raises(RequestError, match="pooling"):
                await served.embed("a", pooling="max")
            results = await submitted(served, [[i] for i in range(20)])
            with pytest.raises(QueueFullError):
                await served.embed("a")
            with pytest.raises(RequestError, match="6 samples at once"):
                await served.submit("a", SamplingParams(n=6), wants_pieces=True)
        accepted = [s for s in results if not isinstance(s, Exception)]
        refused = [s for s in results if isinstance(s, QueueFullError)]
        assert (len(accepted), len(refused)) == (4, 16)
        assert all(isinstance(e.retry_after_s, int) and e.retry_after_s >= 1 for e in refused)
        assert {e.param for e in refused} == {"max_num_waiting"}
        assert served.meters.refused == {"max_num_waiting": 17}
        for stream in [started, *accepted]:
            assert (await stream.next()).finished

    run(llm, main)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_racing_threads_get_exactly_the_remaining_places(n):
    llm = fake_llm(max_num_seqs=2, queue_limits=QueueLimits(max_num_waiting=9))
    params = SamplingParams(max_tokens=4, n=n, ignore_eos=True)
    accepted, refused = [], []
    is_open = threading.Barrier(5)

    def crowd(served, number):
        async def ask():
            is_open.wait()
            results = await submitted(served, [[number, i] for i in range(10)], params)
            accepted.extend(s for s in results if not isinstance(s, Exception))
            refused.extend(s for s in results if isinstance(s, QueueFullError))
            assert is_full.wait(120)
            for stream in results:
                if not isinstance(stream, Exception):
                    assert len((await stream.next()).outputs) == n

        asyncio.run(ask())

    is_full = threading.Event()

    async def main(served):
        with held(llm) as is_waiting:
            stream = await first(served, is_waiting)
            threads = [threading.Thread(target=crowd, args=(served, i)) for i in range(4)]
            for thread in threads:
                thread.start()
            is_open.wait()
            await until(lambda: len(accepted) + len(refused) == 40)
            assert len(accepted) == 10 // n  # one slot and nine places
            assert served.meters.num_waiting == len(accepted) * n
        is_full.set()
        await stream.next()
        for thread in threads:
            await asyncio.to_thread(thread.join)

    run(llm, main)


def test_tokens_are_limited_too_and_an_aborted_place_is_free_at_once():
    llm = fake_llm(max_num_seqs=1, queue_limits=QueueLimits(max_waiting_tokens=100))

    async def main(served):
        with held(llm) as is_waiting:
            await first(served, is_waiting)
            large = await served.submit([1] * 90, SHORT, wants_pieces=False)
            with pytest.raises(QueueFullError) as caught:
                await served.submit([1] * 11, SHORT, wants_pieces=False)
            assert (caught.value.param, caught.value.excess) == ("max_waiting_tokens", 1)
            for _ in range(2):
                large.abort()
            with pytest.raises(AbortedError):
                await large.next()
            other = await served.submit([1] * 11, SHORT, wants_pieces=False)
        assert (await other.next()).finished
        large.abort()
        assert served.meters.finished["abort"] == 1

    run(llm, main)


def test_places_of_those_that_have_ended_are_free_again():
    """They end by a token while a step with a row of theirs is in flight."""
    llm = fake_llm(Reciter(264, said="aaab"), max_num_seqs=2, queue_limits=QueueLimits(max_num_waiting=1))
    params = SamplingParams(max_tokens=40, stop_token_ids=[ord("b")])

    async def main(served):
        for _ in range(3):
            outputs = await asyncio.gather(*(served.generate([i], params) for i in range(3)))
            assert {output.outputs[0].finish_reason for output in outputs} == {"stop"}
            await until(lambda: not served.health().has_work)

    run(llm, main)


def test_a_refused_request_has_not_arrived():
    """Seeds follow from the order of admission, as if no other request had been made."""
    llm, params = fake_llm(max_num_seqs=2, queue_limits=QueueLimits(max_num_waiting=2)), SamplingParams(max_tokens=9)
    prompts = [[i, i + 1] for i in range(12)]

    async def main(served):
        with held(llm) as is_waiting:
            begun = await first(served, is_waiting)
            results = await submitted(served, prompts, params)
        accepted = [i for i, result in enumerate(results) if not isinstance(result, Exception)]
        begun.abort()
        return accepted, [(await results[i].next()).outputs[0].token_ids for i in accepted]

    accepted, tokens = run(llm, main)
    expected = fake_llm().generate([[1, 2], *(prompts[i] for i in accepted)], params, use_tqdm=False)
    assert len(accepted) == 3
    assert tokens == [output.outputs[0].token_ids for output in expected[1:]]


def test_two_hundred_requests_are_left_at_any_moment_and_the_next_one_is_answered():
    llm = fake_llm()
    collect = llm.parts.runner.collect
    llm.parts.runner.collect = lambda ticket: threading.Event().wait(0.001) or collect(ticket)
    rng = random.Random(0)

    async def leave(served, i):
        params = SamplingParams(max_tokens=rng.randint(1, 60), ignore_eos=True, n=rng.randint(1, 3))
        steps, wait_s, is_cancelled = rng.randint(0, 9), rng.random() * 0.3, rng.random() < 0.5
        if i % 5 == 4:
            task = asyncio.ensure_future(served.embed([i % 250] * 90))
        else:
            stream = await served.submit([i % 250] * rng.randint(1, 30), params, wants_pieces=True)
            if not is_cancelled:
                for _ in range(steps):
                    if (await stream.next()).finished:
                        return
                stream.abort()
                return
            task = asyncio.ensure_future(stream.next())
            task.add_done_callback(lambda _: stream.abort())
        await asyncio.sleep(wait_s)
        task.cancel()

    async def main(served):
        await asyncio.gather(*(leave(served, i) for i in range(200)))
        answer = await served.generate("hello", SHORT)
        await until(lambda: all_pages_are_back(llm) and not served.client._thread._by_key)
        meters = served.meters
        assert (meters.num_running, meters.num_waiting, len(meters._live)) == (0, 0, 0)
        assert meters.finished["abort"] > 100
        assert meters.finished.total() == meters.latency.count + meters.num_unseen
        return answer

    answer = run(llm, main)
    assert len(answer.outputs[0].token_ids) == 4
    assert num_pages_free(llm) == NUM_PAGES - 1


def test_requests_admitted_just_before_the_engine_dies_raise():
    llm = fake_llm()

    def broken(ticket):
        raise RuntimeError("the device is gone")

    async def main():
        async with AsyncLLM.from_llm(llm) as served:
            dying = asyncio.ensure_future(served.wait_dead())
            cancelled = asyncio.ensure_future(served.wait_dead())
            with held(llm) as is_waiting:
                streams = [await first(served, is_waiting), *await submitted(served, ["a", "b"])]
                llm.parts.runner.submit = broken
                cancelled.cancel()
                assert not served.health().is_dead
            for stream in streams:
                for _ in range(2):
                    with pytest.raises(EngineDeadError, match="the device is gone"):
                        await stream.next()
            assert "the device is gone" in str(await dying)
            assert "the device is gone" in str(await served.wait_dead())
            health = served.health()
            assert (health.is_dead, health.has_work, health.stalled_s) == (True, False, 0)
            assert "the device is gone" in health.reason
            with pytest.raises(EngineDeadError, match="the device is gone"):
                await served.submit("c", SHORT, wants_pieces=True)
            with pytest.raises(EngineDeadError, match="the device is gone"):
                await served.embed("c")
            meters = served.meters
            assert (len(meters._live), meters.num_waiting, meters.num_running) == (0, 0, 0)
            assert meters.finished == {"error": 3}

    asyncio.run(main())


def test_closing_is_no_death():
    async def main():
        served = AsyncLLM.from_llm(fake_llm())
        dying = asyncio.ensure_future(served.wait_dead())
        await served.close()
        await asyncio.sleep(0)
        assert not dying.done()
        dying.cancel()
        assert served.health().is_dead
        assert "closed" in served.health().reason

    asyncio.run(main())


def test_reading_one_request_may_fail_alone(monkeypatch):
    take = OutputStream.take
    monkeypatch.setattr(OutputStream, "take", lambda reader: 1 / (reader._state.request.prompt != "a") and take(reader))

    async def main(served):
        other = asyncio.create_task(served.generate("other", LONG))
        stream = await served.submit("a", LONG, wants_pieces=True)
        with pytest.raises(ZeroDivisionError):
            await stream.next()
        assert not served.health().is_dead
        assert (await other).finished
        assert served.meters.finished == {"abort": 1, "length": 1}

    run(fake_llm(), main)


def test_an_abort_ends_a_waiting_call_though_the_engine_hangs():
    llm = fake_llm()

    async def main(served):
        with held(llm) as is_waiting:
            stream = await first(served, is_waiting)
            waiting = asyncio.create_task(stream.next())
            await asyncio.sleep(0)
            stream.abort()
            with pytest.raises(AbortedError):
                await waiting
        await until(lambda: not served.health().has_work)
        assert served.meters.finished == {"abort": 1}

    run(llm, main)


def test_reading_after_the_last_output_raises():
    async def main(served):
        stream = await served.submit("a", SHORT, wants_pieces=False)
        assert (await stream.next()).prompt_token_ids == [97]
        with pytest.raises(RuntimeError, match="has ended"):
            await stream.next()

    run(fake_llm(), main)


def test_numbers_that_are_not_finite_end_one_request_and_are_counted_apart():
    async def main(served):
        results = await asyncio.gather(*(served.generate([i], SHORT) for i in range(40)))
        reasons = [result.outputs[0].finish_reason for result in results]
        assert served.meters.finished == {reason: reasons.count(reason) for reason in ("error", "length")}

    run(fake_llm(FakeModel(264, bad_chance=0.2)), main)


def test_calls_run_between_steps_and_neither_their_failures_nor_their_cancelling_harms_the_engine():
    llm = fake_llm()
    ran = []

    async def main(served):
        assert await served.client.call(lambda: threading.current_thread().name) == "jaxserve-engine"
        with pytest.raises(ZeroDivisionError):
            await served.client.call(lambda: 1 / 0)
        with held(llm) as is_waiting:
            stream = await first(served, is_waiting)
            task = asyncio.create_task(served.client.call(lambda: ran.append(1)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
        assert (await stream.next()).finished
        assert not ran

    run(llm, main)


@pytest.mark.parametrize("prompt", ["hello " * 500, [1] * 5000, {"prompt_token_ids": [1] * 5000}])
def test_long_prompts_are_not_read_in_the_event_loop(prompt, monkeypatch):
    threads = []
    read = "jaxserve.engine.serving.engine_client.read_only_prompt"

    def noting(prompt):
        threads.append(threading.current_thread())
        raise RequestError("read", "prompt")

    monkeypatch.setattr(read, noting)

    async def main(served):
        for asked in (prompt, "brief"):
            with pytest.raises(RequestError):
                await served.submit(asked, SHORT, wants_pieces=True)
            with pytest.raises(RequestError):
                await served.embed(asked)
        assert [thread is threading.main_thread() for thread in threads] == [False, False, True, True]

    run(fake_llm(), main)


def test_a_full_queue_reads_no_prompt(monkeypatch):
    llm = fake_llm(max_num_seqs=1, queue_limits=QueueLimits(max_num_waiting=0))

    async def main(served):
        with held(llm) as is_waiting:
            stream = await first(served, is_waiting)
            with monkeypatch.context() as patched:
                patched.setattr("jaxserve.engine.serving.engine_client.read_only_prompt", lambda _: 1 / 0)
                for call in (served.submit("a", wants_pieces=True), served.embed("a")):
                    with pytest.raises(QueueFullError):
                        await call
        await stream.next()

    run(llm, main)


def test_embeddings_run_among_other_requests():
    expected = fake_llm().embed(["hello", "other"], use_tqdm=False)
    last = fake_llm().embed([1, 2, 3], pooling="last", normalize=False, use_tqdm=False)

    async def main(served):
        answer = asyncio.create_task(served.generate("a", LONG))
        vectors = await asyncio.gather(served.embed("hello"), served.embed("other"))
        assert [v.outputs for v in vectors] == [v.outputs for v in expected]
        assert (await served.embed([1, 2, 3], pooling="last", normalize=False)).outputs == last[0].outputs
        assert (await answer).finished
        assert served.meters.finished == {"length": 4}

    run(fake_llm(), main)


def test_cached_prefixes_of_embeddings_are_found_with_their_salt_only():
    llm, ids = fake_llm(prefix_eviction="lru"), [1] * 40

    async def main(served):
        await served.embed({"prompt_token_ids": ids, "cache_salt": "a"})
        found = [await served.generate({"prompt_token_ids": ids, "cache_salt": salt}, SHORT) for salt in ("b", "a")]
        await served.reset_prefix_cache()
        meters = served.meters
        assert (meters.num_queried, meters.num_hit) == (120, found[1].num_cached_tokens)
        return [output.num_cached_tokens for output in found]

    others, own = run(llm, main)
    assert others == 0
    assert own > 0
