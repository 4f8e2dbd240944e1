"""`OutputProcessor`: one step serves all requests, leaves other sequences alone, and closing is always safe."""

import threading

import pytest

from jaxserve.core.errors import EngineDeadError
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.outputs.output_stream import OutputStream, whole
from jaxserve.engine.outputs.run_to_completion import complete
from tests.support.fakes.fake_engine import make_engine, make_request, naive


def finished(outputs, state):
    while not state.is_finished:
        outputs.step()
    return whole(state)


def test_a_step_serves_every_request_and_reports_its_tokens():
    outputs = OutputProcessor(make_engine(), None)
    requests = [make_request(str(i), 3, 4 + i, seed=i) for i in range(3)]
    states = [outputs.add(request) for request in requests]
    seen = []
    while outputs.has_work:
        seen += outputs.step()
    for state, request in zip(states, requests, strict=True):
        ends = [has_ended for other, has_ended in seen if other is state]
        assert ends == [False] * (request.max_tokens - 1) + [True]
        assert whole(state).outputs[0].token_ids == naive(request)[0]


def test_sequences_of_other_owners_run_along():
    engine = make_engine()
    outputs = OutputProcessor(engine, None)
    mine, theirs = make_request("mine", 3, 5, seed=1), make_request("theirs", 3, 9, seed=2)
    (sequence,) = engine.add(theirs)
    assert finished(outputs, outputs.add(mine)).outputs[0].token_ids == naive(mine)[0]
    assert not sequence.is_finished
    while engine.has_work:
        outputs.step()
    assert sequence.token_ids == naive(theirs)[0]


def test_requests_that_share_a_prefix_end_when_aborted_and_all_pages_return():
    engine = make_engine()
    outputs = OutputProcessor(engine, None)
    requests = [make_request(str(i), [1, 2, 3, i], 20) for i in range(3)]
    with outputs.exclusive() as own:
        sequences = own.scheduler.add_sharing(requests, 3)
    for _ in range(3):
        outputs.step()
    outputs.abort(requests)
    assert {s.finish_reason for s in sequences} == {"abort"}
    assert not outputs.has_work
    assert engine.scheduler.stats.num_pages_free == 199


def test_a_stream_returns_nothing_twice():
    outputs = OutputProcessor(make_engine(), None)
    state = outputs.add(make_request("a", 3, 5, n=2))
    reader, pieces = OutputStream(state), []
    while not state.is_finished:
        outputs.step()
        pieces += [piece for piece in (reader.take(), reader.take()) if piece is not None]
    assert reader.take() is None
    for sample in (0, 1):
        seen = [token for piece in pieces for c in piece.outputs if c.index == sample for token in c.token_ids]
        assert seen == state.sequences[sample].token_ids
    assert [piece.finished for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_a_request_closed_in_the_middle_of_a_step_ends_with_the_next():
    """As when the garbage collector finalizes an abandoned stream while another one is being stepped."""
    engine = make_engine()
    outputs = OutputProcessor(engine, None)
    left, kept = outputs.add(make_request("left", 3, 50)), outputs.add(make_request("kept", 3, 6, seed=4))
    collect = engine.runner.collect

    def collect_and_close(ticket):
        if not left.is_finished:
            outputs.close([left])
            assert not left.is_finished  # changing the scheduler during a step would break the step
        return collect(ticket)

    engine.runner.collect = collect_and_close
    assert finished(outputs, kept).outputs[0].token_ids == naive(kept.request)[0]
    assert left.sequences[0].finish_reason == "abort"
    outputs.close([kept])
    assert engine.scheduler.stats.num_pages_free == 199


def test_closing_is_idempotent():
    outputs = OutputProcessor(make_engine(), None)
    state = outputs.add(make_request("a", 3, 5))
    outputs.step()
    outputs.close([state, state])
    outputs.close([state])
    assert not outputs.has_work
    assert whole(state).outputs[0].finish_reason == "abort"


def test_a_claimed_engine_serves_one_thread_only():
    outputs = OutputProcessor(make_engine(), None)
    owner = threading.Thread(target=lambda: None)
    outputs.claim(owner, lambda record: None)
    request = make_request("a", 3)
    adds = (lambda: outputs.add(request), lambda: outputs.exclusive().__enter__())
    for call in (outputs.step, *adds, lambda: outputs.claim(owner, lambda record: None)):
        with pytest.raises(RuntimeError, match="AsyncLLM"):
            call()
    outputs.release()
    finished(outputs, outputs.add(make_request("a", 3)))


def test_an_engine_with_running_requests_cannot_be_claimed():
    outputs = OutputProcessor(make_engine(), None)
    outputs.add(make_request("a", 3))
    with pytest.raises(RuntimeError, match="a stream has not ended"):
        outputs.claim(threading.Thread(target=lambda: None), lambda record: None)


def test_a_refused_request_ends_the_others_of_its_call():
    engine = make_engine()
    outputs = OutputProcessor(engine, None)
    kept = outputs.add(make_request("kept", 3, 6))
    with pytest.raises(ValueError, match="in use"):
        complete(outputs, [make_request("a", 3), make_request("kept", 3)], use_tqdm=False)
    assert list(engine.scheduler.state.requests) == ["kept"]
    assert finished(outputs, kept).outputs[0].token_ids == naive(kept.request)[0]


def test_a_dead_engine_ends_every_request():
    engine = make_engine()
    outputs = OutputProcessor(engine, None)
    state = outputs.add(make_request("a", 3, 9))
    engine.runner.collect = lambda ticket: 1 / 0
    with pytest.raises(EngineDeadError):
        complete(outputs, [make_request("b", 3)], use_tqdm=False)
    assert whole(state).outputs[0].finish_reason == "error"
    outputs.close([state])
    with pytest.raises(EngineDeadError):
        outputs.add(make_request("c", 3))
