"""Priorities, tenants, time limits and full queues as users meet them: in `LLM` and in `AsyncLLM`."""

import asyncio

import pytest

from jaxserve import AsyncLLM, QueueFullError, SamplingParams
from jaxserve.core.errors import RequestError
from jaxserve.scheduler.queue_limits import QueueLimits
from tests.support.fakes.fake_engine import SimulatedClock
from tests.support.fakes.fake_llm import Reciter, all_pages_are_back, fake_llm

LONG = SamplingParams(max_tokens=60, ignore_eos=True)
SHORT = SamplingParams(max_tokens=4, ignore_eos=True)
USER = [{"role": "user", "content": "hello"}]


def timed_llm(**options):
    """An engine whose steps take a second."""
    clock = SimulatedClock()
    llm = fake_llm(Reciter(264, said="tick tock "), clock=clock, **options)
    submit = llm.parts.runner.submit

    def slow(plan):
        clock.now_s += 1
        return submit(plan)

    llm.parts.runner.submit = slow
    return llm


def first_tokens_s(outputs):
    return [output.metrics.first_token_s for output in outputs]


@pytest.mark.parametrize("policy", ["priority", "fair"])
def test_each_prompt_has_its_priority(policy):
    llm = timed_llm(policy=policy, max_num_seqs=1)
    moments = first_tokens_s(llm.generate(["a", "b", "c"], SHORT, priority=[2, 0, 1], use_tqdm=False))
    assert sorted(moments) == [moments[1], moments[2], moments[0]]
    moments = first_tokens_s(llm.generate(["a", "b", "c"], SHORT, priority=7, use_tqdm=False))
    assert sorted(moments) == moments


def test_each_prompt_has_its_tenant():
    llm = timed_llm(policy="fair", max_num_seqs=1)
    tenants = ["many", "many", "many", "one"]
    moments = first_tokens_s(llm.generate(["a", "b", "c", "d"], SHORT, tenant=tenants, use_tqdm=False))
    assert sorted(moments) == [moments[i] for i in (3, 0, 1, 2)]


@pytest.mark.parametrize("stop", [None, "never"])
def test_late_samples_keep_their_text_and_the_others_finish(stop):
    llm = timed_llm()
    params = SamplingParams(max_tokens=60, ignore_eos=True, stop=stop)
    late, other = llm.generate(["a", "b"], params, deadline_s=[10, None], use_tqdm=False)
    (completion,) = late.outputs
    assert completion.finish_reason == "timeout"
    assert completion.stop_reason is None
    assert 5 < len(completion.token_ids) < 12
    assert completion.text == ("tick tock " * 9)[1 : 1 + len(completion.token_ids)]
    assert (late.finished, late.metrics.finish_s) == (True, 11)  # noticed at the end of the step
    assert (other.outputs[0].finish_reason, len(other.outputs[0].token_ids)) == ("length", 60)
    assert all_pages_are_back(llm)


def test_a_queue_timeout_leaves_no_text():
    llm = timed_llm(max_num_seqs=1)
    first, second = llm.generate(["a", "b"], LONG, queue_timeout_s=5.5, use_tqdm=False)
    assert [o.outputs[0].finish_reason for o in (first, second)] == ["length", "timeout"]
    assert (second.outputs[0].text, second.outputs[0].token_ids) == ("", [])
    assert second.metrics.first_token_s is None


def test_chats_and_streams_have_time_limits_too():
    llm = timed_llm()
    (answer,) = llm.chat(USER, LONG, deadline_s=8, add_generation_prompt=False, use_tqdm=False)
    assert answer.outputs[0].finish_reason == "timeout"
    assert not answer.prompt.endswith("[assistant]")
    pieces = list(llm.stream("a", LONG, deadline_s=8))
    assert pieces[-1].finished
    assert pieces[-1].outputs[0].finish_reason == "timeout"
    assert all_pages_are_back(llm)


@pytest.mark.parametrize(
    ("scheduling", "message"),
    [
        ({"deadline_s": [1.0, -2.0]}, "prompt 1: deadline_s=-2.0"),
        ({"queue_timeout_s": 0}, "queue_timeout_s=0"),
        ({"priority": [1]}, "2 prompts but 1 priority"),
        ({"priority": 3}, "scheduling_policy"),
        ({"tenant": "a"}, "scheduling_policy"),
    ],
)
def test_a_bad_field_is_refused_before_anything_runs(scheduling, message):
    llm = fake_llm()
    with pytest.raises(RequestError, match=message) as caught:
        llm.generate(["a", "b"], SHORT, use_tqdm=False, **scheduling)
    assert caught.value.param in scheduling
    assert not llm.parts.engine.has_work
    assert llm.parts.input_processor.num_arrived == 0


def test_an_unknown_argument_is_no_field():
    for call in (fake_llm().generate, fake_llm().stream, fake_llm().chat):
        with pytest.raises(TypeError, match="urgency"):
            call(USER if call.__name__ == "chat" else "a", SHORT, urgency=1)


def test_a_batch_over_the_limit_is_refused_whole_and_leaves_nothing():
    llm, same = (fake_llm(max_num_seqs=2, queue_limits=QueueLimits(max_num_waiting=2)) for _ in range(2))
    stream = llm.stream("busy", LONG)
    next(stream)
    with pytest.raises(QueueFullError):
        llm.generate(["a"] * 4, SHORT, use_tqdm=False)
    with pytest.raises(RequestError, match="at once"):
        llm.score([([1], [2])] * 5, use_tqdm=False)
    assert not llm.parts.engine.scheduler.state.waiting
    stream.close()
    next(same.stream("busy", LONG))
    texts = [[o.outputs[0].text for o in each.generate(["a"] * 3, SHORT, use_tqdm=False)] for each in (llm, same)]
    assert texts[0] == texts[1]  # seeds, too, are as if nothing had been refused
    assert not llm.parts.engine.scheduler.has_work


def test_a_stream_is_checked_when_it_starts():
    """Two streams find room when they are made; the one that starts second finds none."""
    llm = fake_llm(max_num_seqs=1, queue_limits=QueueLimits(max_num_waiting=0))
    first, second = llm.stream("a", LONG), llm.stream("b", LONG)
    next(first)
    with pytest.raises(QueueFullError):
        next(second)
    assert list(first)[-1].finished
    assert list(llm.stream("b", LONG))[-1].finished


def served(llm, main):
    async def with_llm():
        async with AsyncLLM.from_llm(llm) as served:
            return await main(served)

    result = asyncio.run(with_llm())
    assert all_pages_are_back(llm)
    return result


def test_a_late_coroutine_ends_while_another_occupies_the_engine():
    async def main(llm):
        holder = llm.stream("a", LONG)
        await anext(holder)
        late = await llm.generate("b", LONG, queue_timeout_s=5)
        assert not [piece.finished async for piece in holder][:-1].count(True)
        return late.outputs[0].finish_reason

    assert served(timed_llm(max_num_seqs=1), main) == "timeout"


def test_a_full_queue_refuses_coroutines_and_the_others_go_on():
    async def main(llm):
        tasks = [asyncio.create_task(llm.generate(f"{i}", LONG, priority=-i)) for i in range(12)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    llm = fake_llm(max_num_seqs=2, policy="priority", queue_limits=QueueLimits(max_num_waiting=3))
    results = served(llm, main)
    refused = [r for r in results if isinstance(r, QueueFullError)]
    assert refused
    assert all(r.outputs[0].finish_reason == "length" for r in results if r not in refused)


def test_each_prompt_of_a_client_has_its_priority():
    prompts, priorities = ["a", "b", "c"], [2, 1, 0]

    async def main(llm):
        holder = llm.stream("busy", LONG)
        await anext(holder)
        results = await llm.client.generate(prompts, SHORT, wants_pieces=False, priority=priorities)
        outputs = dict([await results.next_indexed() for _ in prompts])
        vectors = await llm.client.embed(prompts, priority=priorities)
        await holder.aclose()
        starts = [outputs[i].metrics.started_s for i in range(3)], [vector.metrics.started_s for vector in vectors]
        return [sorted(each, reverse=True) == each for each in starts]

    assert served(timed_llm(max_num_seqs=2, policy="priority"), main) == [True, True]


def test_bad_fields_of_coroutines_are_refused_where_they_are_given():
    async def main(llm):
        with pytest.raises(RequestError, match="deadline_s"):
            await llm.generate("a", LONG, deadline_s=-1)
        with pytest.raises(RequestError, match="priority"):
            await llm.generate("a", LONG, priority=[1, 2])
        with pytest.raises(RequestError, match="scheduling_policy"):
            await llm.chat(USER, LONG, priority=1)

    served(fake_llm(), main)
