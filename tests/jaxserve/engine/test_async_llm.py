"""`AsyncLLM`: many coroutines over one engine: the same results, no request left behind, every call ends."""

import asyncio
import gc
import queue
import threading
import time
import weakref
from contextlib import aclosing

import pytest

from jaxserve import AsyncLLM, SamplingParams
from jaxserve.core.errors import EngineDeadError, RequestError
from tests.support.fakes.async_llm import run, until
from tests.support.fakes.fake_llm import NUM_PAGES, Reciter, all_pages_are_back, fake_llm, num_pages_free

LONG = SamplingParams(max_tokens=80, ignore_eos=True)
PROMPTS = [f"hello {i}" for i in range(20)]
PARAMS = [SamplingParams(max_tokens=5 + i, seed=i, n=1 + i % 3, logprobs=i % 2 or None, stop="z") for i in range(20)]


def content_of(output):
    return output.prompt, output.prompt_token_ids, output.outputs, output.finished


def test_twenty_at_once_are_as_generate_gives_them_while_one_is_cancelled_and_one_is_bad():
    expected = [content_of(output) for output in fake_llm().generate(PROMPTS, PARAMS, use_tqdm=False)]

    async def main(llm):
        cancelled = asyncio.create_task(llm.generate("never read", LONG))
        good = [asyncio.create_task(llm.generate(p, q)) for p, q in zip(PROMPTS, PARAMS, strict=True)]
        bad = asyncio.create_task(llm.generate([999], LONG))
        await until(lambda: good[0].done())
        cancelled.cancel()
        with pytest.raises(RequestError, match="outside the vocabulary"):
            await bad
        results = await asyncio.gather(*good)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        return [content_of(output) for output in results]

    assert run(fake_llm(), main) == expected


def test_awaits_of_one_moment_share_steps():
    llm = fake_llm()
    sizes = []
    submit = llm.parts.runner.submit
    llm.parts.runner.submit = lambda plan: sizes.append(plan.num_rows) or submit(plan)
    params = SamplingParams(max_tokens=10, ignore_eos=True)
    run(llm, lambda served: asyncio.gather(*(served.generate([1, i], params) for i in range(8))))
    assert max(sizes) == 8
    assert len(sizes) < 20


def test_pieces_make_the_whole():
    said = "naïve 😀 cafés. "
    params = SamplingParams(max_tokens=40, n=2, stop="never. ")
    (expected,) = fake_llm(Reciter(264, said=said)).generate("hello", params, use_tqdm=False)

    async def main(llm):
        return [piece async for piece in llm.stream("hello", params)]

    pieces = run(fake_llm(Reciter(264, said=said)), main)
    for sample in expected.outputs:
        mine = [c for piece in pieces for c in piece.outputs if c.index == sample.index]
        assert "".join(c.text for c in mine) == sample.text
        assert [t for c in mine for t in c.token_ids] == sample.token_ids
    assert [piece.finished for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert len(pieces) > 10


@pytest.mark.parametrize("leave", ["break", "aclose", "cancel"])
def test_leaving_a_stream_aborts_its_request(leave):
    llm = fake_llm()

    async def read(served):
        async for _ in served.stream([1, 2], LONG):
            if leave == "break":
                break
            await asyncio.sleep(3600)

    sequences = []
    add = llm.parts.engine.add
    llm.parts.engine.add = lambda request: sequences.extend(add(request)) or sequences

    async def main(served):
        hold_back(llm)
        if leave == "aclose":
            async with aclosing(served.stream([1, 2], LONG)) as stream:
                await anext(stream)
        elif leave == "break":
            await read(served)
        else:
            task = asyncio.create_task(read(served))
            await until(lambda: num_pages_free(llm) < NUM_PAGES - 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: all_pages_are_back(llm))
        assert [sequence.finish_reason for sequence in sequences] == ["abort"]
        assert not served.client._thread._by_key

    run(llm, main)


def hold_back(llm):
    """Slow the steps down, so that no request ends before it is left."""
    collect = llm.parts.runner.collect
    llm.parts.runner.collect = lambda ticket: time.sleep(0.01) or collect(ticket)


def test_a_chat_is_rendered_and_answered():
    messages = [{"role": "user", "content": "hello"}]
    params = SamplingParams(max_tokens=9, seed=1)
    expected = fake_llm().chat(messages, params, use_tqdm=False)[0]

    async def main(llm):
        assert content_of(await llm.chat(messages, params)) == content_of(expected)
        assert content_of(await llm.generate(await llm.render_chat(messages), params)) == content_of(expected)
        with pytest.raises(RequestError, match="add_generation_prompt=False"):
            await llm.chat(messages, params, continue_final_message=True)
        return await llm.chat(messages, chat_template="{{ messages[0].content }}")

    assert run(fake_llm(), main).prompt == "hello"


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [(["a", "b"], None, "one prompt at a time"), ("a", [LONG], "one SamplingParams"), ("", None, "empty")],
)
def test_bad_input_raises_in_its_own_call(prompt, params, message):
    async def main(llm):
        with pytest.raises(RequestError, match=message):
            await llm.generate(prompt, params)
        with pytest.raises(RequestError, match=message):
            await anext(llm.stream(prompt, params))

    run(fake_llm(), main)


def test_a_dead_engine_raises_in_every_waiting_and_later_call():
    llm = fake_llm()

    def broken(ticket):
        raise RuntimeError("the device is gone")

    async def stream(served):
        return [piece async for piece in served.stream([3], LONG)]

    async def main(served):
        hold_back(llm)
        tasks = [
            asyncio.create_task(c) for c in (served.generate([1], LONG), served.generate([2], LONG), stream(served))
        ]
        await until(lambda: num_pages_free(llm) < NUM_PAGES - 1)
        llm.parts.runner.collect = broken
        for task in tasks:
            with pytest.raises(EngineDeadError, match="the device is gone"):
                await task
        with pytest.raises(EngineDeadError):
            await served.generate([4], LONG)

    async def with_llm():
        async with AsyncLLM.from_llm(llm) as served:
            await main(served)

    asyncio.run(with_llm())


def test_a_fault_between_steps_ends_the_engine(monkeypatch):
    """An exception outside a step must not leave calls waiting forever."""
    llm = fake_llm()
    monkeypatch.setattr("jaxserve.engine.outputs.output_processor.OutputProcessor._extend", lambda *_: 1 / 0)

    async def main(served):
        for _ in range(2):
            with pytest.raises(EngineDeadError, match="division by zero"):
                await served.generate([1], LONG)

    run(llm, main)


def test_the_prefix_cache_is_reset_between_steps_and_not_after_the_end():
    async def main(llm):
        answer = asyncio.ensure_future(llm.generate(PROMPTS[0], PARAMS[0]))
        assert await llm.reset_prefix_cache()
        await answer
        await llm.close()
        with pytest.raises(EngineDeadError, match="is closed"):
            await llm.reset_prefix_cache()

    run(fake_llm(), main)


def test_closing_ends_requests_and_refuses_new_ones():
    llm = fake_llm()

    async def main():
        served = AsyncLLM.from_llm(llm)
        hold_back(llm)
        task = asyncio.create_task(served.generate([1], LONG))
        await until(lambda: num_pages_free(llm) < NUM_PAGES - 1)
        await served.close()
        with pytest.raises(EngineDeadError, match="was closed while"):
            await task
        with pytest.raises(EngineDeadError, match="is closed"):
            await served.generate([1], LONG)
        await served.close()

    asyncio.run(main())
    assert all_pages_are_back(llm)


def test_the_llm_refuses_calls_meanwhile_and_is_usable_afterwards():
    llm = fake_llm()

    async def main(served):
        for call in (llm.generate, llm.stream, lambda p: llm.chat([{"role": "user", "content": "x"}])):
            with pytest.raises(RuntimeError, match="an AsyncLLM drives this engine"):
                call("hello")
        with pytest.raises(RuntimeError, match="an AsyncLLM drives this engine"):
            AsyncLLM.from_llm(llm)
        return await served.generate("hello", PARAMS[0])

    expected = run(llm, main)
    assert content_of(llm.generate("hello", PARAMS[0], use_tqdm=False)[0]) == content_of(expected)


def test_loops_of_several_threads_are_served_at_once():
    llm = fake_llm()
    expected = [content_of(output) for output in fake_llm().generate(PROMPTS, PARAMS, use_tqdm=False)]
    served = AsyncLLM.from_llm(llm)
    results = {}

    def serve(start):
        async def main():
            return await asyncio.gather(*(served.generate(PROMPTS[i], PARAMS[i]) for i in range(start, 20, 4)))

        results[start] = [content_of(output) for output in asyncio.run(main())]

    threads = [threading.Thread(target=serve, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(served.close())
    assert [results[i % 4][i // 4] for i in range(20)] == expected
    assert all_pages_are_back(llm)


def test_a_loop_that_ends_early_leaves_no_request_behind():
    llm = fake_llm()
    served = AsyncLLM.from_llm(llm)
    hold_back(llm)

    async def leave():
        await anext(served.stream([1, 2], LONG))

    asyncio.run(leave())
    assert content_of(asyncio.run(served.generate("hello", PARAMS[0])))[3]
    asyncio.run(served.close())
    assert all_pages_are_back(llm)


def test_an_abandoned_async_llm_ends_its_thread():
    served = AsyncLLM.from_llm(fake_llm())
    thread, gone = served.client._thread._thread, weakref.ref(served)
    assert thread.is_alive()
    del served
    gc.collect()
    assert gone() is None
    assert not thread.is_alive()


class CountedQueue(queue.SimpleQueue):
    num_gets = 0

    def get(self, *args, **kwargs):
        self.num_gets += 1
        return super().get(*args, **kwargs)


def test_an_idle_engine_sleeps_until_it_is_called(monkeypatch):
    monkeypatch.setattr(queue, "SimpleQueue", CountedQueue)
    llm = fake_llm()

    async def main(served):
        await served.generate([1], SamplingParams(max_tokens=3, ignore_eos=True))
        await until(lambda: not llm.parts.engine.has_work)
        await asyncio.sleep(0.05)
        num_gets = served.client._thread.commands._commands.num_gets
        await asyncio.sleep(0.1)
        assert served.client._thread.commands._commands.num_gets == num_gets

    run(llm, main)
