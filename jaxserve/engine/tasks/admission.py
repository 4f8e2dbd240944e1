"""Host: `admit`: checked requests of offline calls get a place in the queue."""

from jaxserve.core.request import Request
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.outputs.output_processor import OutputProcessor


def admit(outputs: OutputProcessor, inputs: InputProcessor, requests: list[Request]) -> list[Request]:
    """The requests, numbered in order, if the queue has room for all; raises `QueueFullError` where it has not.

    Any thread may call it: the numbers of one call follow one another.
    """
    with outputs.exclusive() as engine:
        engine.live().check(requests)
        first = inputs.arrive(requests)
    return list(inputs.numbered(requests, first))
