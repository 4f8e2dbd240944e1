"""`EngineClient`: lists of prompts admitted together, and the facts and counters that a server reads."""

import asyncio

import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import QueueFullError, RequestError
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.engine.serving import engine_client
from jaxserve.scheduler.queue_limits import QueueLimits
from tests.support.fakes.async_llm import held, run, until
from tests.support.fakes.fake_llm import MAX_MODEL_LEN, NUM_PAGES, PAGE, fake_llm

SHORT = SamplingParams(max_tokens=4, ignore_eos=True)
PROMPTS = [Prompt(None, [1, 2]), Prompt("hello", None), {"prompt_token_ids": [3]}]


def test_prompts_of_one_call_are_numbered_and_answered_in_order():
    expected = fake_llm().generate([[1, 2], "hello", [3]], SHORT, use_tqdm=False)

    async def main(served):
        results = await served.client.generate(PROMPTS, SHORT, wants_pieces=False)
        found = {}
        while results.has_more:
            index, output = await results.next_indexed()
            found[index] = output
        return [found[index] for index in range(3)]

    found = run(fake_llm(), main)
    assert [o.outputs[0].token_ids for o in found] == [o.outputs[0].token_ids for o in expected]
    assert [(o.request_id, o.prompt) for o in found] == [("0", None), ("1", "hello"), ("2", None)]


def test_one_bad_prompt_refuses_all_and_leaves_no_trace():
    llm = fake_llm()

    async def main(served):
        with pytest.raises(RequestError, match="prompt 1: token id 999"):
            await served.client.generate([[1], [999]], SHORT, wants_pieces=False)
        with pytest.raises(RequestError, match="prompt 1 must be text"):
            await served.client.embed(["a", 5])
        with pytest.raises(RequestError, match="at least one"):
            await served.client.embed([])
        assert llm.parts.input_processor.num_arrived == 0

    run(llm, main)


def test_a_call_is_admitted_like_one_of_its_prompts():
    llm, pairs = (
        fake_llm(max_num_seqs=1, queue_limits=QueueLimits(max_num_waiting=2)),
        SamplingParams(n=2, max_tokens=4),
    )

    async def main(served):
        with held(llm) as is_waiting:
            first = await served.client.generate([[1]], SHORT, wants_pieces=False)
            await until(is_waiting.is_set)
            with pytest.raises(QueueFullError):
                served.client.check_room(3)
            with pytest.raises(QueueFullError):
                await served.client.generate([[1]], SamplingParams(n=3), wants_pieces=False)
            served.client.check_room(2)
            many = await served.client.generate([[1]] * 9, pairs, wants_pieces=False)
            assert served.client.metrics.num_waiting == 2
            with pytest.raises(QueueFullError):
                await served.client.generate([[1]], SHORT, wants_pieces=False)
            many.abort()
            assert served.client.metrics.num_waiting == 0
        assert (await first.next()).finished

    run(llm, main)


def test_a_prompt_is_passed_on_as_it_is(monkeypatch):
    ids = [1] * 3000  # long enough to be read in a thread
    monkeypatch.setattr("jaxserve.engine.inputs.prompt._types", lambda values: 1 / 0)

    async def main(served):
        with pytest.raises(RequestError, match="maximum context length"):
            await served.client.generate([Prompt(None, ids)], SHORT, wants_pieces=False)

    run(fake_llm(), main)
    assert engine_client._read([prompt := Prompt("a", ids)]) == [prompt]
    assert engine_client._read([prompt])[0] is prompt


def test_a_chat_is_rendered_to_the_prompt_that_llm_shows():
    messages = [{"role": "user", "content": "hello"}]

    async def main(served):
        prompt = await served.client.render_chat(messages)
        assert isinstance(prompt, Prompt)
        assert prompt.as_dict() == await served.render_chat(messages)
        return prompt.as_dict()

    assert run(fake_llm(), main) == fake_llm().render_chat(messages)


def test_facts_and_counters_are_those_of_the_engine():
    llm = fake_llm(prefix_eviction="lru", generation_config={"top_k": 3})

    async def main(served):
        client, info = served.client, served.client.info
        assert (info.max_model_len, info.page_size, info.num_pages) == (MAX_MODEL_LEN, PAGE, NUM_PAGES - 1)
        assert (info.max_num_seqs, info.vocab_size, info.has_prefix_cache) == (8, 264, True)
        assert (info.max_concurrency, info.generation_config) == (
            (NUM_PAGES - 1) / (MAX_MODEL_LEN // PAGE),
            {"top_k": 3},
        )
        assert client.tokenizer is llm.get_tokenizer()
        await asyncio.gather(served.generate([1] * 40, SHORT), served.generate([2] * 40, SHORT))
        await until(lambda: not client.health().has_work)
        assert client.stats() == llm.parts.engine.scheduler.stats
        assert client.stats().num_pages_cached > 0
        taken = await client.snapshot()
        assert taken.count_pages()["cached"] == client.stats().num_pages_cached
        await client.reset_prefix_cache()
        assert client.stats().num_pages_free == info.num_pages

    run(llm, main)
