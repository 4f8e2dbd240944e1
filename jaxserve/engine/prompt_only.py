"""Host: requests that draw nothing, run to their ends: what scoring and embedding have in common."""

from collections.abc import Callable

from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.engine.engine import Engine
from jaxserve.engine.progress import CountBar

Step = Callable[[], object]


def run_prompts(
    engine: Engine, step: Step, groups: list[tuple[list[Request], int]], *, noun: str, title: str, use_tqdm: bool
) -> list[Sequence]:
    """The ended sequences in the order of the groups, which are requests with equal first tokens, and how many are.

    step: the engine's, or that of whoever serves other requests in it meanwhile. An exception on the way, an interrupt
    too, aborts these requests and no others.
    """
    requests = [request for group, _ in groups for request in group]
    sequences: list[Sequence] = []
    try:
        for group, shared_len in groups:
            sequences += engine.add_sharing(group, shared_len)
        with CountBar(use_tqdm, desc=title, unit=noun, total=len(sequences)) as bar:
            running = sequences
            while running:
                step()
                left = [sequence for sequence in running if not sequence.is_finished]
                bar.update(len(running) - len(left))
                running = left
    except BaseException:
        for request in requests:
            engine.abort(request.request_id)
        raise
    return sequences
