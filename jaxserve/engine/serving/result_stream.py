"""Host: requests that were let in, for whoever waits for their results: one, or several together."""

from typing import Any

from jaxserve.core.outputs import RequestOutput
from jaxserve.engine.serving.engine_thread import EngineThread
from jaxserve.engine.serving.loop_delivery import ResultQueue


class ResultStreams:
    """Requests that were let in together. They belong to the event loop that they were made in.

    prompt_token_ids: of each prompt as it was understood.
    """

    def __init__(self, driver: EngineThread, inbox: ResultQueue, prompt_token_ids: list[list[int]]):
        self._driver, self._inbox = driver, inbox
        self.prompt_token_ids = prompt_token_ids

    @property
    def has_more(self) -> bool:
        """Whether `next` will give anything."""
        return self._inbox.num_open > 0

    async def next(self) -> tuple[int, Any]:
        """Of any request what is new, or the whole, and which request it is of; the last of each is `finished`.

        Raises EngineDeadError, and AbortedError after `abort`. To be cancelled loses nothing.
        """
        return await self._inbox.next()

    def abort(self) -> None:
        """End what has not ended, wherever it is; at any moment, as often as wanted. Pages return with the next
        step."""
        for waiter in self._inbox.waiters:
            self._driver.abort(waiter)


class ResultStream:
    """One request that was let in. prompt_token_ids: of the prompt as it was understood."""

    def __init__(self, alone: ResultStreams):
        self._alone = alone
        (self.prompt_token_ids,) = alone.prompt_token_ids

    async def next(self) -> RequestOutput:
        """As `ResultStreams.next`."""
        _, output = await self._alone.next()
        return output

    def abort(self) -> None:
        """As `ResultStreams.abort`."""
        self._alone.abort()
