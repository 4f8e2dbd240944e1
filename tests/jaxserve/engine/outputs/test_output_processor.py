"""Jobs: one step serves all of them; what is nobody's is left alone; closing is safe at any moment."""

import threading

import pytest

from jaxserve.core.errors import EngineDeadError
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.outputs.output_stream import OutputStream, whole
from jaxserve.engine.outputs.run_to_completion import complete
from tests.support.fakes.fake_engine import make_engine, make_request, naive


def finished(jobs, job):
    while not job.is_finished:
        jobs.step()
    return whole(job)


def test_a_step_serves_every_job_and_tells_which_have_moved():
    jobs = OutputProcessor(make_engine(), None)
    requests = [make_request(str(i), 3, 4 + i, seed=i) for i in range(3)]
    started = [jobs.start(request) for request in requests]
    told = []
    while jobs.has_work:
        told += jobs.step()
    for job, request in zip(started, requests, strict=True):
        ends = [has_ended for moved, has_ended in told if moved is job]
        assert ends == [False] * (request.max_tokens - 1) + [True]
        assert whole(job).outputs[0].token_ids == naive(request)[0]


def test_sequences_that_are_nobodys_job_run_along():
    engine = make_engine()
    jobs = OutputProcessor(engine, None)
    mine, theirs = make_request("mine", 3, 5, seed=1), make_request("theirs", 3, 9, seed=2)
    (sequence,) = engine.add(theirs)
    assert finished(jobs, jobs.start(mine)).outputs[0].token_ids == naive(mine)[0]
    assert not sequence.is_finished
    while engine.has_work:
        jobs.step()
    assert sequence.token_ids == naive(theirs)[0]


def test_requests_that_share_a_prefix_end_when_aborted_and_all_pages_return():
    engine = make_engine()
    jobs = OutputProcessor(engine, None)
    requests = [make_request(str(i), [1, 2, 3, i], 20) for i in range(3)]
    with jobs.exclusive() as own:
        sequences = own.scheduler.add_sharing(requests, 3)
    for _ in range(3):
        jobs.step()
    jobs.abort(requests)
    assert {s.finish_reason for s in sequences} == {"abort"}
    assert not jobs.has_work
    assert engine.scheduler.stats.num_pages_free == 199


def test_the_reader_gives_nothing_twice():
    jobs = OutputProcessor(make_engine(), None)
    job = jobs.start(make_request("a", 3, 5, n=2))
    reader, pieces = OutputStream(job), []
    while not job.is_finished:
        jobs.step()
        pieces += [piece for piece in (reader.take(), reader.take()) if piece is not None]
    assert reader.take() is None
    for sample in (0, 1):
        told = [token for piece in pieces for c in piece.outputs if c.index == sample for token in c.token_ids]
        assert told == job.sequences[sample].token_ids
    assert [piece.finished for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_a_job_closed_in_the_middle_of_a_step_ends_with_the_next():
    """As when the garbage collector finds a stream that was left while another one is being stepped."""
    engine = make_engine()
    jobs = OutputProcessor(engine, None)
    left, kept = jobs.start(make_request("left", 3, 50)), jobs.start(make_request("kept", 3, 6, seed=4))
    collect = engine.runner.collect

    def collect_and_close(ticket):
        if not left.is_finished:
            jobs.close([left])
            assert not left.is_finished  # the scheduler is at work: to change it now would break the step
        return collect(ticket)

    engine.runner.collect = collect_and_close
    assert finished(jobs, kept).outputs[0].token_ids == naive(kept.request)[0]
    assert left.sequences[0].finish_reason == "abort"
    jobs.close([kept])
    assert engine.scheduler.stats.num_pages_free == 199


def test_a_job_is_closed_as_often_as_one_likes():
    jobs = OutputProcessor(make_engine(), None)
    job = jobs.start(make_request("a", 3, 5))
    jobs.step()
    jobs.close([job, job])
    jobs.close([job])
    assert not jobs.has_work
    assert whole(job).outputs[0].finish_reason == "abort"


def test_claimed_jobs_serve_one_thread_only():
    jobs = OutputProcessor(make_engine(), None)
    owner = threading.Thread(target=lambda: None)
    jobs.claim(owner, lambda record: None)
    request = make_request("a", 3)
    starts = (lambda: jobs.start(request), lambda: jobs.exclusive().__enter__())
    for call in (jobs.step, *starts, lambda: jobs.claim(owner, lambda record: None)):
        with pytest.raises(RuntimeError, match="AsyncLLM"):
            call()
    jobs.release()
    finished(jobs, jobs.start(make_request("a", 3)))


def test_jobs_under_way_are_not_claimed():
    jobs = OutputProcessor(make_engine(), None)
    jobs.start(make_request("a", 3))
    with pytest.raises(RuntimeError, match="a stream has not ended"):
        jobs.claim(threading.Thread(target=lambda: None), lambda record: None)


def test_a_refused_request_takes_the_others_of_its_call_with_it():
    engine = make_engine()
    jobs = OutputProcessor(engine, None)
    kept = jobs.start(make_request("kept", 3, 6))
    with pytest.raises(ValueError, match="in use"):
        complete(jobs, [make_request("a", 3), make_request("kept", 3)], use_tqdm=False)
    assert list(engine.scheduler.state.requests) == ["kept"]
    assert finished(jobs, kept).outputs[0].token_ids == naive(kept.request)[0]


def test_a_dead_engine_ends_every_job():
    engine = make_engine()
    jobs = OutputProcessor(engine, None)
    job = jobs.start(make_request("a", 3, 9))
    engine.runner.collect = lambda ticket: 1 / 0
    with pytest.raises(EngineDeadError):
        complete(jobs, [make_request("b", 3)], use_tqdm=False)
    assert whole(job).outputs[0].finish_reason == "error"
    jobs.close([job])
    with pytest.raises(EngineDeadError):
        jobs.start(make_request("c", 3))
