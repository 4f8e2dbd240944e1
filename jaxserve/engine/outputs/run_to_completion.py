"""Host: the two ways to wait for requests in the caller's own thread: for the whole of many, or for pieces of one."""

from collections.abc import Generator, Iterable

from jaxserve.core.outputs import RequestOutput
from jaxserve.core.progress_bars import GenerateBar
from jaxserve.core.request import Request
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.outputs.output_stream import OutputStream, whole
from jaxserve.engine.outputs.request_state import RequestState


def complete(
    jobs: OutputProcessor, requests: Iterable[tuple[str | None, Request]], use_tqdm: bool
) -> list[RequestOutput]:
    """Run requests to their ends; an exception on the way, an interrupt too, aborts these and no others."""
    own: dict[RequestState, None] = {}
    try:
        for text, request in requests:
            own[jobs.start(text, request)] = None
        with GenerateBar(use_tqdm, sum(len(job.sequences) for job in own)) as bar:
            for job in own:
                while not job.is_finished:
                    moved = jobs.step()
                    if use_tqdm:
                        ends = [has_ended for other, has_ended in moved if other in own]
                        bar.update(sum(ends), len(ends))
    finally:
        jobs.close(own)
    return [whole(job) for job in own]


def pieces(jobs: OutputProcessor, text: str | None, request: Request) -> Generator[RequestOutput, None, None]:
    """What is new of one request, each time that something is; it starts with the first `next`.

    To close the iterator before its end aborts the request.
    """
    job = jobs.start(text, request)
    try:
        reader, is_finished = OutputStream(job), False
        while not is_finished:
            if (piece := reader.take()) is None:
                jobs.step()
            else:
                is_finished = piece.finished
                yield piece
    finally:
        jobs.close([job])
