"""Threads that share an `LLM`: their requests have numbers of their own, from which ids and seeds follow."""

import sys
import threading
import time

import pytest

from jaxserve import SamplingParams
from jaxserve.core.sequence import Sequence
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.outputs import output_stream
from tests.support.fakes.fake_llm import all_pages_are_back, fake_llm

NUM_THREADS, NUM_CALLS = 4, 30
UNSEEDED = SamplingParams(temperature=1.0, max_tokens=6)


@pytest.fixture
def _threads_switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def generated(llm, count):
    outputs = llm.generate(["a"] * count, UNSEEDED, use_tqdm=False)
    return [(output.request_id, output.outputs[0].token_ids) for output in outputs]


def streamed(llm):
    pieces = list(llm.stream("a", UNSEEDED))
    return [(pieces[0].request_id, [token for piece in pieces for token in piece.outputs[0].token_ids])]


@pytest.fixture
def _another_thread_runs_while_numbers_are_given(monkeypatch):
    def arrive(inputs, requests):
        first = inputs.num_arrived
        time.sleep(1e-4)
        inputs.num_arrived = first + len(requests)
        return first

    monkeypatch.setattr(InputProcessor, "arrive", arrive)


@pytest.mark.usefixtures("_threads_switch_often", "_another_thread_runs_while_numbers_are_given")
def test_four_threads_draw_what_one_draws_for_the_same_numbers():
    llm, found, errors = fake_llm(), [], []

    def run(first):
        try:
            for i in range(first, first + NUM_CALLS):
                found.extend(streamed(llm) if i % 2 else generated(llm, 3))
        except Exception as error:  # else only the thread would end
            errors.append(error)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(found) == NUM_THREADS * NUM_CALLS * 2
    assert sorted(found) == sorted(generated(fake_llm(), len(found)))
    assert all_pages_are_back(llm)


def test_a_piece_is_whole_although_another_thread_ends_the_request_meanwhile(monkeypatch):
    llm, others = fake_llm(), []
    expected = generated(fake_llm(), 1)[0][1]

    def run_to_the_end():
        while llm.output_processor.has_work:
            llm.output_processor.step()

    def completion(sequence, text, position, detokenizer):
        """With the sequence as it is read, and as it is a moment later."""
        found = sequence.tokens.copy()
        if not others:
            others.append(threading.Thread(target=run_to_the_end))
            others[0].start()
            others[0].join(0.2)
        monkeypatch.setattr(Sequence, "tokens", found)
        piece = read(sequence, text, position, detokenizer)
        monkeypatch.setattr(Sequence, "tokens", tokens)
        return piece

    read, tokens = output_stream._completion, Sequence.tokens
    monkeypatch.setattr(output_stream, "_completion", completion)
    pieces = list(llm.stream("a", UNSEEDED))
    others[0].join()
    assert [token for piece in pieces for token in piece.outputs[0].token_ids] == expected
