"""Chats, streams and coroutines over real arrays return the same answers."""

import asyncio

import pytest

from jaxserve import LLM, AsyncLLM, SamplingParams
from tests.support.golden_data import goldens
from tests.support.tiny_engines import SMALL, tiny_engine

pytestmark = pytest.mark.optimized

NAME = "smollm2-135m-instruct"
GREEDY = SamplingParams(temperature=0, max_tokens=24)
CAPITAL = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
GOLDENS = goldens("llama3")


@pytest.fixture(scope="module")
def llm(real_model):
    real_model(NAME)
    return LLM(NAME, dtype="float32", max_model_len=256, max_num_seqs=8, max_num_batched_tokens=32)


def test_the_demo_model_answers_as_an_assistant(llm):
    rendered = llm.render_chat(CAPITAL)
    assert rendered["prompt"].endswith("<|im_start|>assistant\n")
    assert rendered["prompt_token_ids"].count(1) == 3  # <|im_start|>: system, user, assistant
    (answer,) = llm.chat(CAPITAL, GREEDY, use_tqdm=False)
    assert "Paris" in answer.outputs[0].text
    assert (answer.outputs[0].finish_reason, answer.outputs[0].stop_reason) == ("stop", None)
    (again,) = llm.generate(rendered, GREEDY, use_tqdm=False)
    assert again.outputs == answer.outputs


def test_the_assistant_continues_its_final_message(llm):
    begun = [*CAPITAL, {"role": "assistant", "content": "The capital of France is"}]
    rendered = llm.render_chat(begun, add_generation_prompt=False, continue_final_message=True)
    assert rendered["prompt"].endswith("<|im_start|>assistant\nThe capital of France is")
    pieces = [piece.outputs[0].text for piece in llm.stream(rendered, GREEDY)]
    assert "".join(pieces).startswith(" Paris")
    assert len(pieces) > 1  # as many as steps, which may draw several tokens


def test_streams_of_real_text_are_what_generate_gives(llm):
    params = SamplingParams(temperature=1.0, seed=4, n=3, max_tokens=16, logprobs=2, stop=[".", "\n\n"])
    (whole,) = llm.generate("Naïve café 😀:", params, use_tqdm=False)
    pieces = list(llm.stream("Naïve café 😀:", params))
    for sample in whole.outputs:
        mine = [c for piece in pieces for c in piece.outputs if c.index == sample.index]
        assert "".join(c.text for c in mine) == sample.text
        assert [token for c in mine for token in c.token_ids] == sample.token_ids
        assert (mine[-1].finish_reason, mine[-1].stop_reason) == (sample.finish_reason, sample.stop_reason)


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
