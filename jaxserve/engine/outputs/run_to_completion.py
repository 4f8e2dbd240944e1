"""Host: `complete` and `pieces`: step the engine until requests end, for the whole of many or pieces of one.

Results are read between steps: another thread's step may extend and end a request while it is read.
"""

from collections.abc import Generator, Iterable

from jaxserve.core.deferred_signals import deferred_signals
from jaxserve.core.outputs import RequestOutput
from jaxserve.core.progress_bars import GenerateBar
from jaxserve.core.request import Request
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.outputs.output_stream import OutputStream, whole
from jaxserve.engine.outputs.request_state import RequestState


def complete(outputs: OutputProcessor, requests: Iterable[Request], use_tqdm: bool) -> list[RequestOutput]:
    """Run admitted requests to their ends; an exception meanwhile, an interrupt too, aborts these and no others."""
    own: dict[RequestState, None] = {}
    try:
        for request in requests:
            with deferred_signals():
                own[outputs.add(request)] = None
        with GenerateBar(use_tqdm, sum(len(state.samples) for state in own)) as bar:
            for state in own:
                while not state.is_finished:
                    update = outputs.step()
                    if use_tqdm:
                        ends = [has_ended for other, has_ended in update if other in own]
                        bar.update(sum(ends), len(ends))
    finally:
        outputs.close(own)
    with outputs.exclusive():
        return [whole(state) for state in own]


def pieces(outputs: OutputProcessor, request: Request) -> Generator[RequestOutput, None, None]:
    """What is new of one request, whenever something is; the request is queued by the first `next`.

    That raises `QueueFullError` where other requests have filled the queue since this one was admitted. Closing the
    iterator before its end aborts the request.
    """
    outputs.check([request])
    own: list[RequestState] = []
    try:
        with deferred_signals():
            own.append(outputs.add(request))
        stream, is_finished = OutputStream(own[0]), False
        while not is_finished:
            with outputs.exclusive():
                piece = stream.take()
            if piece is None:
                outputs.step()
            else:
                is_finished = piece.finished
                yield piece
    finally:
        outputs.close(own)
