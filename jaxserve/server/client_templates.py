"""Host: `ClientTemplates`: limits how many chat templates of clients are rendered at once, each in its own process."""

import asyncio
import math
from typing import Any

from jaxserve.core.errors import QueueFullError
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.engine.serving.engine_client import EngineClient
from jaxserve.text.client_template import TIME_LIMIT_S, ClientTemplate

MAX_PROCESSES = 2  # limits the cores and memory that clients can occupy; an ordinary chat occupies a core for 0.1 s


class ClientTemplates:
    """The rendering processes of one server. time_limit_s: of one rendering, and separately of the wait before it."""

    def __init__(self, time_limit_s: float = TIME_LIMIT_S):
        self._time_limit_s = time_limit_s
        self._free = asyncio.Semaphore(MAX_PROCESSES)

    async def render_chat(self, engine: EngineClient, source: str, messages: Any, **options: Any) -> Prompt:
        """`EngineClient.render_chat` with a client's template.

        Raises `QueueFullError` if no process becomes free within the time limit, and as `ClientTemplate.render` does.
        """
        try:
            async with asyncio.timeout(self._time_limit_s):
                await self._free.acquire()
        except TimeoutError:
            message = f"other clients' chat templates took too long: more than {self._time_limit_s:g} s"
            raise QueueFullError(message, "chat_template", retry_after_s=math.ceil(self._time_limit_s)) from None
        template = ClientTemplate(source, time_limit_s=self._time_limit_s)
        rendering = asyncio.create_task(engine.render_chat(messages, chat_template=template, **options))
        rendering.add_done_callback(lambda _: self._free.release())
        return await asyncio.shield(rendering)  # after a disconnect the process still counts until it has ended
