"""Wiring: `AsyncLLM`, one engine for many coroutines, in notebooks and servers."""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from jaxserve.core.outputs import RequestOutput
from jaxserve.core.sampling_params import SamplingParams
from jaxserve.core.service import Service, ServiceOptions
from jaxserve.engine.chat import CHAT_PARAMS, ChatCallOptions, ChatOptions, split_options
from jaxserve.engine.driver import Driver, Waiter
from jaxserve.engine.intake import only_params
from jaxserve.engine.llm import LLM
from jaxserve.engine.prompts import read_only_prompt
from jaxserve.text.tokenizer import Tokenizer


class AsyncLLM:
    """A model that serves coroutines, of one event loop or of several; what they await at once runs as one batch.

    >>> llm = AsyncLLM("smollm2-135m-instruct")
    >>> a, b = await asyncio.gather(llm.generate("Paris is"), llm.generate("Rome is"))
    >>> async for piece in llm.stream("Once upon a time"):
    ...     print(piece.outputs[0].text, end="")
    >>> await llm.close()

    Unlike vLLM's, `generate` is awaited for the whole and `stream` iterates over pieces. For `score`, `embed` and
    `hidden_states` close it first and ask its `llm`, or an `LLM` that it was made from.

    Options are those of `LLM`. A thread of its own drives the engine until `close`, the end of an `async with`, or
    until nobody holds the AsyncLLM any more. To cancel a task or to leave a stream aborts its request. Bad input raises
    RequestError where it was given; if the device fails every waiting call raises EngineDeadError.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any):
        self._drive(LLM(model, **options))

    @classmethod
    def from_llm(cls, llm: LLM) -> "AsyncLLM":
        """Take over an engine that is there already; `llm` refuses calls until this is closed."""
        made = cls.__new__(cls)
        made._drive(llm)
        return made

    def _drive(self, llm: LLM) -> None:
        self.llm = llm
        self._driver = Driver(llm.jobs, llm.parts.requests)
        weakref.finalize(self, self._driver.close).atexit = False  # the driver itself sees to that

    def get_tokenizer(self) -> Tokenizer | None:
        return self.llm.get_tokenizer()

    async def generate(
        self, prompt: Any, sampling_params: SamplingParams | None = None, **service: Unpack[ServiceOptions]
    ) -> RequestOutput:
        """Complete one prompt, in any form that `LLM.generate` takes; for several, gather several calls.

        service: as in `LLM.generate`; late requests end while others run, too, and full queues refuse at once.
        """
        waiter = await self._start(prompt, sampling_params, service, wants_pieces=False)
        try:
            return await waiter.next()
        finally:
            self._driver.abort(waiter)

    async def stream(
        self, prompt: Any, sampling_params: SamplingParams | None = None, **service: Unpack[ServiceOptions]
    ) -> AsyncGenerator[RequestOutput, None]:
        """Complete one prompt piece by piece, as `LLM.stream` does."""
        waiter = await self._start(prompt, sampling_params, service, wants_pieces=True)
        try:
            is_finished = False
            while not is_finished:
                piece = await waiter.next()
                is_finished = piece.finished
                yield piece
        finally:
            self._driver.abort(waiter)

    async def chat(
        self, messages: Any, sampling_params: SamplingParams | None = None, **options: Unpack[ChatCallOptions]
    ) -> RequestOutput:
        """Answer one conversation; by default the answer may fill the context. options: those of `render_chat`, and how
        to be served, as in `generate`."""
        params = CHAT_PARAMS if sampling_params is None else sampling_params
        rendering, service = split_options(options)
        return await self.generate(await self.render_chat(messages, **rendering), params, **service)

    async def render_chat(self, messages: Any, **options: Unpack[ChatOptions]) -> dict[str, Any]:
        """The prompt that `chat` makes of one conversation, as `generate` and `stream` take it."""
        return await asyncio.to_thread(self.llm.render_chat, messages, **options)

    async def _start(
        self, prompt: Any, sampling_params: Any, service: Mapping[str, Any], *, wants_pieces: bool
    ) -> Waiter:
        maker = self.llm.parts.requests
        arrival_s = maker.clock()
        read, params = read_only_prompt(prompt), only_params(sampling_params)
        options = {"cache_salt": read.cache_salt, "service": Service(**service), "arrival_s": arrival_s}
        ids = read.token_ids
        if ids is None:  # long texts take long: elsewhere than in the event loop
            (ids,) = await asyncio.to_thread(maker.token_ids, [read])
        waiter = Waiter(wants_pieces)
        self._driver.start(waiter, read.text, partial(maker.make, list(ids), params, **options))
        return waiter

    async def reset_prefix_cache(self) -> bool:
        """Forget the KV that is kept of requests that have ended; others go on undisturbed."""
        return await asyncio.wrap_future(self._driver.call(self.llm.reset_prefix_cache))

    async def close(self) -> None:
        """End the thread; requests under way raise EngineDeadError. May be called again."""
        await asyncio.to_thread(self._driver.close)

    async def __aenter__(self) -> "AsyncLLM":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
