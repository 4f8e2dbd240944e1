"""Host: `Submission`, a request that was let in, for whoever waits for its results."""

from jaxserve.core.outputs import RequestOutput
from jaxserve.engine.driver import Driver
from jaxserve.engine.waiters import Waiter


class Submission:
    """prompt_token_ids: of the prompt as it was understood. It belongs to the event loop that it was made in."""

    def __init__(self, driver: Driver, waiter: Waiter, prompt_token_ids: list[int]):
        self._driver, self._waiter = driver, waiter
        self.prompt_token_ids = prompt_token_ids

    async def next(self) -> RequestOutput:
        """What is new, or the whole; the last is `finished`. Raises EngineDeadError, and AbortedError after `abort`."""
        return await self._waiter.next()

    def abort(self) -> None:
        """End the request, wherever it is; at any moment, as often as wanted. Its pages return with the next step."""
        self._driver.abort(self._waiter)
