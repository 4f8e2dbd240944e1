"""Host: `run_prefill_only`: runs requests that draw nothing to their ends, for scoring and embedding."""

from jaxserve.core.errors import RequestError
from jaxserve.core.options.lora_request import AdapterFailure
from jaxserve.core.progress_bars import CountBar
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.engine.outputs.output_processor import OutputProcessor


def run_prefill_only(
    outputs: OutputProcessor, groups: list[tuple[list[Request], int]], *, noun: str, title: str, use_tqdm: bool
) -> list[Sequence]:
    """The ended sequences in the order of the groups, each of requests and the number of first tokens they share.

    Raises `QueueFullError` before anything runs, and `RequestError` where an adapter could not be read. An exception
    meanwhile, an interrupt too, aborts these requests and no others.
    """
    sequences: list[Sequence] = []
    requests = [request for group, _ in groups for request in group]
    outputs.check(requests)
    try:
        with outputs.exclusive() as engine:
            for group, shared_len in groups:
                sequences += engine.scheduler.add_sharing(group, shared_len)
        with CountBar(use_tqdm, desc=title, unit=noun, total=len(sequences)) as bar:
            running = sequences
            while running:
                outputs.step()
                left = [sequence for sequence in running if not sequence.is_finished]
                bar.update(len(running) - len(left))
                running = left
    finally:
        outputs.abort(requests)
    for sequence in sequences:
        check_adapter(sequence)
    return sequences


def check_adapter(sequence: Sequence) -> None:
    """Raise `RequestError` for a sequence that has ended because its adapter could not be read."""
    if isinstance(sequence.stop_reason, AdapterFailure):
        raise RequestError(sequence.stop_reason, "lora_request")
