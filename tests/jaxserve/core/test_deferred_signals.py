"""Signals wait for the end of a block, at whatever moment they come, and handlers are back in their places after it."""

import gc
import random
import signal
import threading
from contextlib import nullcontext

import pytest

from jaxserve.core.deferred_signals import deferred_signals
from tests.support.signal_handlers import handlers


def stop(signum, frame):
    raise TimeoutError(signal.Signals(signum).name)


@pytest.fixture(autouse=True)
def _handlers():
    with handlers(stop, signal.SIGINT, signal.SIGVTALRM):
        yield


@pytest.mark.parametrize("depth", [1, 3])
def test_a_signal_arrives_at_the_end_of_the_outermost_block(depth):
    done = []

    def enter(left):
        with deferred_signals():
            if left > 1:
                enter(left - 1)
            else:
                signal.raise_signal(signal.SIGINT)
            done.append(left)

    with pytest.raises(TimeoutError, match="SIGINT"):
        enter(depth)
    assert done == list(range(1, depth + 1))


def test_an_error_of_the_block_is_kept_as_the_context():
    def fail():
        with deferred_signals():
            signal.raise_signal(signal.SIGVTALRM)
            raise ValueError("of the block")

    with pytest.raises(TimeoutError) as caught:
        fail()
    assert str(caught.value.__context__) == "of the block"


def test_signals_without_a_python_handler_keep_their_disposition():
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with deferred_signals():
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) is not stop
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_change_nothing():
    seen = []

    def run():
        with deferred_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [stop]


def interrupted(block, times):
    """Counts of two halves of a block that is interrupted at random moments, this often."""
    halves, rng = [0, 0], random.Random(0)

    def run():
        signal.setitimer(signal.ITIMER_VIRTUAL, rng.uniform(1e-5, 5e-4))
        while True:
            with block():
                halves[0] += 1
                sum(range(50))
                halves[1] += 1

    gc.disable()  # an error within a callback of the collector, as JAX has one, is only printed: no signal would follow
    try:
        for _ in range(times):
            with pytest.raises(TimeoutError):
                run()
    finally:
        gc.enable()
    return halves


def test_blocks_are_whole_at_whatever_moment_a_signal_comes():
    begun, ended = interrupted(deferred_signals, 100)
    assert begun == ended > 0
    begun, ended = interrupted(nullcontext, 100)
    assert begun > ended, "the control is not interrupted within its block"
