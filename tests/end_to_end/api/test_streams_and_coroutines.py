"""Streams and coroutines return the tokens of `generate`, also while other requests run."""

import asyncio

from jaxserve import AsyncLLM, SamplingParams
from tests.support.golden_data import goldens
from tests.support.tiny_engines import SMALL, tiny_engine

GOLDENS = goldens("llama3")


def test_a_stream_and_a_generate_in_between():
    tiny = tiny_engine("llama3")
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    stream = tiny.stream(GOLDENS[0].prompt, params)
    pieces = [next(stream) for _ in range(3)]
    outs = tiny.generate([g.prompt for g in GOLDENS[1:]], params, use_tqdm=False)
    pieces += stream
    assert [t for piece in pieces for t in piece.outputs[0].token_ids] == GOLDENS[0].greedy
    assert [out.outputs[0].token_ids for out in outs] == [g.greedy for g in GOLDENS[1:]]
    assert tiny.stats.num_pages_free == SMALL["num_pages"] - 1


def test_an_engine_built_here_steps_in_a_thread_of_its_own():
    tiny = tiny_engine("llama3")
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)

    async def main():
        async with AsyncLLM.from_llm(tiny) as served:
            left = served.stream(GOLDENS[0].prompt, params)
            await anext(left)
            await left.aclose()
            return await asyncio.gather(*(served.generate(g.prompt, params) for g in GOLDENS))

    assert [out.outputs[0].token_ids for out in asyncio.run(main())] == [g.greedy for g in GOLDENS]
    assert tiny.stats.num_pages_free == SMALL["num_pages"] - 1
    again = tiny.generate([g.prompt for g in GOLDENS], params, use_tqdm=False)
    assert [out.outputs[0].token_ids for out in again] == [g.greedy for g in GOLDENS]
