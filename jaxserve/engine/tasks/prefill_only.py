"""Host: requests that draw nothing, run to their ends: what scoring and embedding have in common."""

from jaxserve.core.progress_bars import CountBar
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.engine.outputs.output_processor import OutputProcessor


def run_prompts(
    jobs: OutputProcessor, groups: list[tuple[list[Request], int]], *, noun: str, title: str, use_tqdm: bool
) -> list[Sequence]:
    """The ended sequences in the order of the groups, which are requests with equal first tokens, and how many are.

    An exception on the way, an interrupt too, aborts these requests and no others.
    """
    sequences: list[Sequence] = []
    jobs.check([request for group, _ in groups for request in group])
    try:
        for group, shared_len in groups:
            sequences += jobs.add_sharing(group, shared_len)
        with CountBar(use_tqdm, desc=title, unit=noun, total=len(sequences)) as bar:
            running = sequences
            while running:
                jobs.step()
                left = [sequence for sequence in running if not sequence.is_finished]
                bar.update(len(running) - len(left))
                running = left
    finally:
        jobs.abort(request for group, _ in groups for request in group)
    return sequences
