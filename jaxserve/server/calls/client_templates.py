"""Host: `ClientTemplates`, chats by templates of clients: a few at once, each in a process that may be killed."""

import asyncio
import math
from typing import TYPE_CHECKING, Any

from jaxserve.core.errors import QueueFullError
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.text.client_template import TIME_LIMIT_S, ClientTemplate

if TYPE_CHECKING:  # it imports jax
    from jaxserve.engine.async_llm import AsyncLLM

AT_ONCE = 2  # processes: cores and memory that clients can keep busy; a usual chat keeps one busy for 0.1 s


class ClientTemplates:
    """What one server renders for its clients. time_limit_s: of one rendering, and again of the wait before it."""

    def __init__(self, time_limit_s: float = TIME_LIMIT_S):
        self._time_limit_s = time_limit_s
        self._free = asyncio.Semaphore(AT_ONCE)

    async def render_chat(self, llm: "AsyncLLM", source: str, messages: Any, **options: Any) -> Prompt:
        """`EngineClient.render_chat` with a client's template.

        Raises `QueueFullError` where none of the others has ended in time, and as `ClientTemplate.render` does.
        """
        try:
            async with asyncio.timeout(self._time_limit_s):
                await self._free.acquire()
        except TimeoutError:
            message = f"the chat templates of others took too long: more than {self._time_limit_s:g} s"
            raise QueueFullError(message, "chat_template", retry_after_s=math.ceil(self._time_limit_s)) from None
        template = ClientTemplate(source, time_limit_s=self._time_limit_s)
        rendering = asyncio.create_task(llm.client.render_chat(messages, chat_template=template, **options))
        rendering.add_done_callback(lambda _: self._free.release())
        return await asyncio.shield(rendering)  # a client that leaves frees no place before its process has ended
