"""Streams: their pieces together are the output of `generate`, with other streams running or left early."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve import SamplingParams
from jaxserve.core.errors import RequestError
from jaxserve.core.outputs import CompletionOutput
from jaxserve.engine.inputs.prompt import read_prompts
from jaxserve.engine.outputs.output_stream import OutputStream
from tests.support.fakes.fake_llm import NUM_PAGES, Reciter, all_pages_are_back, fake_llm, num_pages_free

TEXT = "Zoë said “naïve 😀 cafés” twice. "
PROMPT = "hello "
ANY = fake_llm()


def joined(pieces):
    """One output from many pieces; each piece must be new, and only the last one finished."""
    samples: dict[int, CompletionOutput] = {}
    for i, piece in enumerate(pieces):
        assert piece.finished == (i == len(pieces) - 1)
        for new in piece.outputs:
            assert new.text or new.token_ids or new.finish_reason
            old = samples.get(new.index)
            if old is None:
                samples[new.index] = new
                continue
            assert old.finish_reason is None
            samples[new.index] = replace(
                new,
                text=old.text + new.text,
                token_ids=old.token_ids + new.token_ids,
                logprobs=None if new.logprobs is None else old.logprobs + new.logprobs,
            )
    first = pieces[0]
    assert all(piece.prompt_logprobs is None for piece in pieces[1:])
    outputs = [samples[index] for index in sorted(samples)]
    return replace(first, outputs=outputs, finished=True, request_id="", metrics=None)


def at_once(llm, prompt, params):
    return replace(llm.generate(prompt, params, use_tqdm=False)[0], request_id="", metrics=None)


@pytest.mark.parametrize("num_others", [1, 3])
@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("max_num_seqs", [2, 8])
def test_no_sample_overtakes_the_one_that_scores_the_prompt(num_others, n, max_num_seqs):
    """Half of the prompt is cached, which is of use to all samples but the first one, and others wait before them.

    The first piece has all prompt log-probabilities, and the prompt is computed once, in several steps: each sample
    needs only its own four tokens in addition.
    """
    llm, ids = fake_llm(prefix_eviction="lru", max_num_seqs=max_num_seqs), list(range(66))
    scored = SamplingParams(max_tokens=4, n=n, seed=1, prompt_logprobs=1, ignore_eos=True)
    expected = at_once(fake_llm(), ids, scored)
    llm.generate(ids[:36], SamplingParams(max_tokens=1), use_tqdm=False)
    prompts, brief = read_prompts([*([200] for _ in range(num_others)), ids]), SamplingParams(max_tokens=1)
    params, records = [*(brief for _ in range(num_others)), scored], []
    states = [llm.output_processor.add(request) for request in llm.admit(prompts, params)]
    llm.parts.engine.observer = records.append
    stream, pieces = OutputStream(states[-1]), []
    while not states[-1].is_finished:
        llm.output_processor.step()
        pieces += filter(None, [stream.take()])
    assert pieces[0].prompt_logprobs == expected.prompt_logprobs
    assert joined(pieces).outputs == expected.outputs
    num_computed = sum(record.num_tokens for record in records)
    assert num_computed <= num_others + len(ids) + 4 * n
    llm.output_processor.close(states)


def streamed_among_others(rng):
    """(pieces, preemptions of sample 0) of a scored prompt among others, with priorities or tenants and few pages."""
    policy = rng.choice(["priority", "fair"])
    llm = fake_llm(prefix_eviction="lru", max_num_seqs=rng.randint(3, 6), num_pages=rng.randint(26, 30), policy=policy)

    def add(ids, params, **scheduling):
        (request,) = llm.admit(read_prompts([ids]), params, scheduling)
        return llm.output_processor.add(request)

    def add_other():
        order = {"fcfs": {}, "priority": {"priority": rng.randint(-5, 5)}, "fair": {"tenant": rng.choice("ab")}}[policy]
        add([rng.randrange(250)] * rng.randint(4, 30), SamplingParams(max_tokens=30, ignore_eos=True), **order)

    for _ in range(rng.randint(0, 3)):
        add_other()
    state = add(list(range(60)), SamplingParams(max_tokens=4, n=3, prompt_logprobs=1, ignore_eos=True))
    stream, pieces, num_others = OutputStream(state), [], 0
    while not state.is_finished:
        if num_others < 4 and rng.random() < 0.5:
            num_others += 1
            add_other()
        llm.output_processor.step()
        pieces += filter(None, [stream.take()])
    return pieces, state.samples[0].sequence.num_preemptions


@pytest.mark.parametrize("seed", [3, 18, 28])
def test_prompt_logprobs_are_whole_though_the_sample_that_scores_is_preempted(seed):
    pieces, num_preemptions = streamed_among_others(random.Random(seed))
    assert num_preemptions
    assert None not in pieces[0].prompt_logprobs[1:]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stop", [None, "said “", "😀", ["never", "twice. Zo"]])
@pytest.mark.parametrize("logprobs", [None, 0, 4])
def test_pieces_make_the_whole(n, stop, logprobs):
    llm = fake_llm(Reciter(264, said=TEXT))
    for shown in (False, True):
        params = SamplingParams(
            max_tokens=60, n=n, stop=stop, logprobs=logprobs, prompt_logprobs=logprobs, include_stop_str_in_output=shown
        )
        pieces = list(llm.stream(PROMPT, params))
        assert len(pieces) > 10
        assert joined(pieces) == at_once(llm, PROMPT, params)
        if stop is not None:
            assert {c.finish_reason for c in pieces[-1].outputs} == {"stop"}
    assert all_pages_are_back(llm)


@given(
    allowed=st.sets(st.sampled_from(list("aé😀 ".encode())), min_size=1),
    stop=st.lists(st.text("aé 😀", min_size=1, max_size=3), max_size=3),
    n=st.integers(1, 3),
    seed=st.integers(0, 99),
    max_tokens=st.integers(1, 30),
    min_tokens=st.integers(0, 10),
)
def test_pieces_make_the_whole_of_any_text(allowed, stop, n, seed, max_tokens, min_tokens):
    """Bytes in random order: incomplete characters, and stop strings that begin and do not end."""
    params = SamplingParams(
        allowed_token_ids=allowed,
        stop=stop,
        n=n,
        seed=seed,
        max_tokens=max_tokens,
        min_tokens=min(min_tokens, max_tokens),
    )
    assert joined(list(ANY.stream([1, 2, 3], params))) == at_once(ANY, [1, 2, 3], params)


def test_equal_samples_of_a_greedy_request_are_computed_once():
    llm, params = fake_llm(), SamplingParams(n=3, temperature=0, seed=1, max_tokens=6, logprobs=1, ignore_eos=True)
    (output,) = llm.generate(["hello"], params, use_tqdm=False)
    (alone,) = llm.generate(["hello"], replace(params, n=1), use_tqdm=False)
    assert output.outputs == [replace(alone.outputs[0], index=i) for i in range(3)]
    texts = [""] * 3
    for piece in llm.stream("hello", params):
        for completion in piece.outputs:
            texts[completion.index] += completion.text
    assert texts == [alone.outputs[0].text] * 3
    (request,) = llm.admit(read_prompts("hello"), params)
    assert len(llm.output_processor.add(request).samples) == 1


def test_pieces_hold_whole_characters_and_nothing_that_may_become_a_stop_string():
    llm = fake_llm(Reciter(264, said=TEXT))
    params = SamplingParams(max_tokens=80, stop="“naïve 😀 cafés”!")
    texts = [piece.outputs[0].text for piece in llm.stream(PROMPT, params)]
    assert "�" not in "".join(texts)
    so_far = ""
    for text in texts[:-1]:
        so_far += text
        assert not any(so_far.endswith("“naïve 😀 cafés”!"[:length]) for length in range(1, 17))


def test_two_streams_and_a_generate_in_between_do_not_disturb_each_other():
    alone, together = fake_llm(), fake_llm()
    params = [SamplingParams(max_tokens=30, seed=i, logprobs=1, n=1 + i, ignore_eos=True) for i in range(3)]
    expected = [joined(list(alone.stream([5, i], p))) for i, p in enumerate(params)]
    first, second = together.stream([5, 0], params[0]), together.stream([5, 1], params[1])
    pieces = [[], []]
    for _ in range(5):
        pieces[0].append(next(first))
        pieces[1] += [next(second), next(second)]
    assert at_once(together, [5, 2], params[2]) == expected[2]
    pieces[1] += second
    pieces[0] += first
    assert [joined(p) for p in pieces] == expected[:2]
    assert all_pages_are_back(together)


def test_tokens_of_steps_by_other_callers_come_in_one_piece():
    llm = fake_llm()
    stream = llm.stream([5, 1], SamplingParams(max_tokens=30, seed=1, ignore_eos=True))
    next(stream)
    llm.generate([5, 2], SamplingParams(max_tokens=40, ignore_eos=True), use_tqdm=False)
    (rest,) = stream
    assert len(rest.outputs[0].token_ids) == 29


@pytest.mark.parametrize("leave", ["break", "close", "forget", "raise"])
def test_leaving_a_stream_aborts_its_request(leave):
    llm = fake_llm()
    stream = llm.stream([1, 2], SamplingParams(max_tokens=80, n=3, ignore_eos=True))
    for _ in range(4):
        next(stream)
    assert num_pages_free(llm) < NUM_PAGES - 1
    if leave == "close":
        stream.close()
    elif leave == "raise":
        with pytest.raises(KeyError):
            stream.throw(KeyError("mine"))
    elif leave == "break":
        streams = [stream]
        del stream
        for _ in streams.pop():
            break
    else:
        del stream
    assert all_pages_are_back(llm)


def test_leaving_one_stream_keeps_the_others_running():
    llm = fake_llm()
    params = SamplingParams(max_tokens=20, seed=3, ignore_eos=True)
    expected = joined(list(llm.stream([7], params)))
    kept, left = llm.stream([7], params), llm.stream([8], params)
    pieces = [next(kept)]
    next(left)
    left.close()
    assert joined([*pieces, *kept]) == expected
    assert all_pages_are_back(llm)


def test_an_interrupted_generate_aborts_its_own_requests_only(monkeypatch):
    llm = fake_llm()
    params = SamplingParams(max_tokens=40, seed=3, ignore_eos=True)
    expected = joined(list(llm.stream([7], params)))
    stream = llm.stream([7], params)
    pieces = [next(stream)]
    collect, calls = llm.parts.runner.collect, []

    def interrupted(ticket):
        calls.append(ticket)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return collect(ticket)

    monkeypatch.setattr(llm.parts.runner, "collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[1, 2], [3, 4]], SamplingParams(max_tokens=50, ignore_eos=True), use_tqdm=False)
    assert joined([*pieces, *stream]) == expected
    assert all_pages_are_back(llm)


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        (["one", "two"], None, "one prompt at a time"),
        ([[1, 2]], None, "one prompt at a time"),
        ("a", [SamplingParams()], "one SamplingParams"),
        ([999], None, "outside the vocabulary"),
        ("", None, "empty"),
        ([1.5], None, "must be text"),
    ],
)
def test_bad_input_is_refused_when_it_is_given(prompt, params, message):
    llm = fake_llm()
    with pytest.raises(RequestError, match=message):
        llm.stream(prompt, params)
    assert all_pages_are_back(llm)


def test_an_unread_stream_never_starts():
    llm = fake_llm()
    llm.stream("hello")
    assert not llm.parts.engine.has_work
