"""Ends of texts, and tokens that they must not contain: limits, stop tokens, minimum length, bad words."""

import pytest

from jaxserve import SamplingParams
from jaxserve.core.options.no_token_left import NoTokenLeft
from tests.support.golden_data import goldens
from tests.support.tiny_engines import drain, driven, submit, tiny_engine

GOLDEN = goldens("llama3")[1]


def complete(**params):
    params = {"temperature": 0, "max_tokens": 16, "ignore_eos": True} | params
    return tiny_engine("llama3").generate([GOLDEN.prompt], SamplingParams(**params), use_tqdm=False)[0].outputs[0]


def test_a_stop_token_ends_the_text_and_is_its_last_token():
    stop = GOLDEN.greedy[5]
    end = GOLDEN.greedy.index(stop) + 1
    out = complete(stop_token_ids=[stop])
    assert (out.token_ids, out.finish_reason, out.stop_reason) == (GOLDEN.greedy[:end], "stop", stop)


def test_min_tokens_holds_a_stop_token_back():
    stop = GOLDEN.greedy[0]
    out = complete(stop_token_ids=[stop], min_tokens=6)
    assert stop not in out.token_ids[:6]
    assert len(out.token_ids) >= 6


def test_the_context_ends_the_text():
    out = complete(max_tokens=None)
    assert len(GOLDEN.prompt) + len(out.token_ids) == 128
    assert out.finish_reason == "length"


@pytest.mark.parametrize("words", [1, 2, 3])
def test_bad_words_of_several_tokens_never_appear(words):
    """Bad words are given as text; here their ids are put into the request, as the tiny model has no tokenizer."""
    llm = tiny_engine("llama3")
    bad = tuple(GOLDEN.greedy[:words])
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    sequence = submit(llm, GOLDEN.prompt, params, bad_words=(bad,))
    drain(llm)
    tokens = sequence.token_ids
    assert len(tokens) == 16
    assert all(tuple(tokens[i : i + words]) != bad for i in range(16))
    assert tokens[: words - 1] == GOLDEN.greedy[: words - 1]


@pytest.mark.parametrize("num_rounds", [1, 4])
@pytest.mark.parametrize("min_tokens", [0, 9])
def test_a_text_that_bad_words_leave_no_token_ends_alone_with_the_reason(num_rounds, min_tokens):
    """Of the two tokens that are allowed, none may follow the second, nor may the one that would end the text."""
    llm, (first, second, end) = tiny_engine("llama3"), (5, 6, 7)
    words = ((first, first), (second, first), (second, second))
    ends = {"min_tokens": min_tokens, "stop_token_ids": [end]} if min_tokens else {}
    allowed = [first, second, end] if min_tokens else [first, second]
    params = SamplingParams(temperature=0, max_tokens=16, allowed_token_ids=allowed, ignore_eos=True, **ends)
    with driven(llm, num_rounds, is_overlapped=True):
        stuck = submit(llm, goldens("llama3")[2].prompt, params, bad_words=words)
        other = submit(llm, GOLDEN.prompt, SamplingParams(temperature=0, max_tokens=24, ignore_eos=True))
        drain(llm)
    assert stuck.token_ids in ([first, second], [second])
    assert stuck.finish_reason == "error"
    assert isinstance(stuck.stop_reason, NoTokenLeft)
    assert "allowed_token_ids" in stuck.stop_reason
    assert "bad_words" in stuck.stop_reason
    assert ("min_tokens" in stuck.stop_reason) == (min_tokens > 0)
    assert (other.finish_reason, other.token_ids) == ("length", GOLDEN.greedy)


def test_one_bad_row_ends_alone():
    """NaN in a sequence's pages ends it with an error; other rows and later users of the pages are unaffected."""
    from dataclasses import replace

    import jax.numpy as jnp

    llm = tiny_engine("llama3", num_pages=12)
    engine, runner = llm.parts.engine, llm.parts.runner
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    victim, other = submit(llm, goldens("llama3")[2].prompt, params), submit(llm, GOLDEN.prompt, params)
    with driven(llm, 1, is_overlapped=True):
        for _ in range(6):
            engine.step()
    page = int(engine.scheduler.state.slot_table.pages(victim.slot)[0])
    kv = runner._state.kv
    runner._state = replace(runner._state, kv=replace(kv, pool=kv.pool.at[:, page].set(jnp.nan)))
    drain(llm)
    assert (victim.finish_reason, victim.stop_reason) == ("error", None)
    assert (other.finish_reason, other.token_ids) == ("length", GOLDEN.greedy)
    again = llm.generate([g.prompt for g in goldens("llama3")], params, use_tqdm=False)
    assert [out.outputs[0].token_ids for out in again] == [g.greedy for g in goldens("llama3")]
