"""Wiring: `AsyncLLM`, one engine for many coroutines, in notebooks and servers."""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Callable
from collections.abc import Sequence as SequenceOf
from types import TracebackType
from typing import Any, Unpack

from jaxserve.core.errors import EngineDeadError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.core.outputs import EmbeddingRequestOutput, RequestOutput
from jaxserve.engine.inputs.chat_renderer import CHAT_PARAMS, ChatCallOptions, ChatOptions, split_options
from jaxserve.engine.llm import LLM
from jaxserve.engine.serving.engine_client import EngineClient
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.engine.serving.engine_thread import EngineThread
from jaxserve.engine.serving.result_stream import ResultStream, ResultStreams
from jaxserve.engine.serving.watchdog import EngineHealth
from jaxserve.text.tokenizer import Tokenizer


class AsyncLLM:
    """A model that serves coroutines, of one event loop or of several; what they await at once runs as one batch.

    >>> llm = AsyncLLM("smollm2-135m-instruct")
    >>> a, b = await asyncio.gather(llm.generate("Paris is"), llm.generate("Rome is"))
    >>> async for piece in llm.stream("Once upon a time"):
    ...     print(piece.outputs[0].text, end="")
    >>> await llm.close()

    Unlike vLLM's, `generate` is awaited for the whole and `stream` iterates over pieces. For `score` and
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
        self.llm, self.detokenizer = llm, llm.jobs.detokenizer
        parts = llm.parts
        self._driver = EngineThread(llm.jobs, parts.requests)
        self._entrance = EngineClient(self._driver, parts.requests, parts.engine.scheduler.check_fields)
        weakref.finalize(self, self._driver.close).atexit = False  # the driver itself sees to that

    def get_tokenizer(self) -> Tokenizer | None:
        return self.llm.get_tokenizer()

    async def generate(
        self, prompt: Any, sampling_params: SamplingParams | None = None, **scheduling: Unpack[SchedulingKwargs]
    ) -> RequestOutput:
        """Complete one prompt, in any form that `LLM.generate` takes; for several, gather several calls.

        scheduling: as in `LLM.generate`; late requests end while others run, too, and full queues refuse at once.
        """
        submission = await self.submit(prompt, sampling_params, wants_pieces=False, **scheduling)
        try:
            return await submission.next()
        finally:
            submission.abort()

    async def stream(
        self, prompt: Any, sampling_params: SamplingParams | None = None, **scheduling: Unpack[SchedulingKwargs]
    ) -> AsyncGenerator[RequestOutput, None]:
        """Complete one prompt piece by piece, as `LLM.stream` does."""
        submission = await self.submit(prompt, sampling_params, wants_pieces=True, **scheduling)
        try:
            is_finished = False
            while not is_finished:
                piece = await submission.next()
                is_finished = piece.finished
                yield piece
        finally:
            submission.abort()

    def now(self) -> float:
        """Seconds on the engine's clock."""
        return self.llm.parts.requests.clock()

    def check_room(self, num_samples: int) -> None:
        """Raise as `submit` would for any prompts at all, so that those for which there is no room need not be read."""
        self._driver.check_room(num_samples)

    async def submit(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        *,
        wants_pieces: bool,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> ResultStream:
        """Let one prompt in, checked as a whole; its results come as those of `stream` (wants_pieces) or `generate`.

        Raises RequestError, QueueFullError and EngineDeadError at once, whatever step is under way; nothing has
        happened then. Whoever has the Submission must read it to its end, or abort it.
        """
        return ResultStream(await self.submit_all([prompt], sampling_params, wants_pieces=wants_pieces, **scheduling))

    async def submit_all(
        self,
        prompts: SequenceOf[Any],
        sampling_params: SamplingParams | None = None,
        *,
        wants_pieces: bool,
        arrival_s: float | None = None,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> ResultStreams:
        """As `submit`, for a list of prompts: all are let in, or none. arrival_s: when they came, by `now`."""
        return await self._entrance.generate(prompts, sampling_params, scheduling, arrival_s, wants_pieces)

    async def embed(
        self, prompt: Any, *, pooling: str = "mean", normalize: bool = True, **scheduling: Unpack[SchedulingKwargs]
    ) -> EmbeddingRequestOutput:
        """One prompt's vector, as `LLM.embed` makes it, beside other requests; refused as `submit` refuses.

        scheduling: as in `generate`; what is late raises LateError.
        """
        (output,) = await self.embed_all([prompt], pooling=pooling, normalize=normalize, **scheduling)
        return output

    async def embed_all(
        self,
        prompts: SequenceOf[Any],
        *,
        pooling: str = "mean",
        normalize: bool = True,
        arrival_s: float | None = None,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> list[EmbeddingRequestOutput]:
        """As `embed`, for a list of prompts: all are let in, or none. arrival_s: when they came, by `now`."""
        submissions = await self._entrance.embed(prompts, pooling, normalize, scheduling, arrival_s)
        try:
            found = dict([await submissions.next() for _ in prompts])
            return [found[i] for i in range(len(prompts))]
        finally:
            submissions.abort()

    async def chat(
        self, messages: Any, sampling_params: SamplingParams | None = None, **options: Unpack[ChatCallOptions]
    ) -> RequestOutput:
        """Answer one conversation; by default the answer may fill the context. options: those of `render_chat`, and how
        to be served, as in `generate`."""
        params = CHAT_PARAMS if sampling_params is None else sampling_params
        rendering, scheduling = split_options(options)
        return await self.generate(await self.render_chat(messages, **rendering), params, **scheduling)

    async def render_chat(self, messages: Any, **options: Unpack[ChatOptions]) -> dict[str, Any]:
        """The prompt that `chat` makes of one conversation, as `generate` and `stream` take it."""
        return await asyncio.to_thread(self.llm.render_chat, messages, **options)

    async def call[T](self, function: Callable[[], T]) -> T:
        """Run something between two steps, in the thread that drives the engine; its result, or what it raised."""
        return await asyncio.wrap_future(self._driver.call(function))

    async def reset_prefix_cache(self) -> bool:
        """Forget the KV that is kept of requests that have ended; others go on undisturbed."""
        return await self.call(self.llm.reset_prefix_cache)

    @property
    def meters(self) -> EngineMetrics:
        """What was done since the AsyncLLM was made; any thread may read it."""
        return self._driver.meters

    def health(self) -> EngineHealth:
        """Whether the engine lives and moves on; any thread may ask, and waits for nothing."""
        return self._driver.health()

    async def wait_dead(self) -> EngineDeadError:
        """Wait until the engine has died, and return the reason; to `close` it is not to die."""
        return await asyncio.wrap_future(self._driver.death)

    async def close(self) -> None:
        """End the thread; requests under way raise EngineDeadError. May be called again."""
        await asyncio.to_thread(self._driver.close)

    async def __aenter__(self) -> "AsyncLLM":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
