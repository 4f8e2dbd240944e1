"""Wiring: `AsyncLLM`: one engine for many coroutines, in notebooks and servers."""

import asyncio
import os
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Unpack

from jaxserve.core.errors import EngineDeadError
from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.core.outputs import EmbeddingRequestOutput, RequestOutput
from jaxserve.engine.inputs.chat_renderer import CHAT_PARAMS, ChatCallOptions, ChatOptions, split_options
from jaxserve.engine.inputs.per_prompt import only_params
from jaxserve.engine.llm import LLM
from jaxserve.engine.serving.engine_client import EngineClient
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.engine.serving.result_stream import ResultStream
from jaxserve.engine.serving.watchdog import EngineHealth
from jaxserve.text.tokenizer import Tokenizer


class AsyncLLM:
    """A model that serves coroutines, of one event loop or of several; what they await at once runs as one batch.

    >>> llm = AsyncLLM("smollm2-135m-instruct")
    >>> a, b = await asyncio.gather(llm.generate("Paris is"), llm.generate("Rome is"))
    >>> async for piece in llm.stream("Once upon a time"):
    ...     print(piece.outputs[0].text, end="")
    >>> await llm.close()

    Unlike in vLLM, `await generate(…)` returns the whole output and `stream(…)` yields pieces. For `score` and
    `hidden_states` close it first and call its `llm`, or the `LLM` that it was made from.

    Options are those of `LLM`. A thread of its own drives the engine until `close`, the end of an `async with`, or
    until nothing refers to the AsyncLLM any more. Cancelling a task or leaving a stream aborts its request. Bad input
    raises RequestError in the call that gave it; if the device fails every waiting call raises EngineDeadError.

    client: the engine as a server sees it; admits lists of prompts.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any):
        self._drive(LLM(model, **options))

    @classmethod
    def from_llm(cls, llm: LLM) -> "AsyncLLM":
        """Over an engine that exists; `llm` refuses calls until the AsyncLLM is closed."""
        made = cls.__new__(cls)
        made._drive(llm)
        return made

    def _drive(self, llm: LLM) -> None:
        self.llm, parts = llm, llm.parts
        self.client = EngineClient(llm.output_processor, parts.input_processor, llm.chats, parts.text.generation_config)

    def get_tokenizer(self) -> Tokenizer | None:
        return self.llm.get_tokenizer()

    async def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        *,
        lora_request: LoRARequest | None = None,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> RequestOutput:
        """Complete one prompt, in any form that `LLM.generate` takes; for several, gather several calls.

        lora_request, scheduling: as in `LLM.generate`; a full queue refuses at once, without waiting for the step in
        progress.
        """
        results = await self.submit(
            prompt, sampling_params, wants_pieces=False, lora_request=lora_request, **scheduling
        )
        try:
            return await results.next()
        finally:
            results.abort()

    async def stream(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        *,
        lora_request: LoRARequest | None = None,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> AsyncGenerator[RequestOutput, None]:
        """Complete one prompt piece by piece, as `LLM.stream` does."""
        results = await self.submit(prompt, sampling_params, wants_pieces=True, lora_request=lora_request, **scheduling)
        try:
            while results.has_more:
                yield await results.next()
        finally:
            results.abort()

    async def submit(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        *,
        wants_pieces: bool,
        lora_request: LoRARequest | None = None,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> ResultStream[RequestOutput]:
        """Admit one prompt, checked as a whole; its results come as those of `stream` (wants_pieces) or `generate`.

        Raises RequestError, QueueFullError and EngineDeadError at once, even while a step runs; nothing was queued
        then. The returned stream must be read to its end, or aborted.
        """
        params = only_params(sampling_params)
        return await self.client.generate(
            [prompt], params, wants_pieces=wants_pieces, lora_request=lora_request, **scheduling
        )

    async def embed(
        self,
        prompt: Any,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        lora_request: LoRARequest | None = None,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> EmbeddingRequestOutput:
        """One prompt's vector, as `LLM.embed` makes it, batched with other requests.

        lora_request, scheduling: as in `generate`. Raises as `submit` does, and LateError after a time limit.
        """
        (output,) = await self.client.embed(
            [prompt], pooling=pooling, normalize=normalize, lora_request=lora_request, **scheduling
        )
        return output

    async def chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | None = None,
        *,
        lora_request: LoRARequest | None = None,
        **options: Unpack[ChatCallOptions],
    ) -> RequestOutput:
        """Answer one conversation; by default the answer may fill the context.

        lora_request: as in `generate`. options: those of `render_chat`, and the scheduling options of `generate`.
        """
        params = CHAT_PARAMS if sampling_params is None else sampling_params
        rendering, scheduling = split_options(options)
        prompt = await self.client.render_chat(messages, **rendering)
        return await self.generate(prompt, params, lora_request=lora_request, **scheduling)

    async def render_chat(self, messages: Any, **options: Unpack[ChatOptions]) -> dict[str, Any]:
        """The prompt that `chat` makes of one conversation, as `generate` and `stream` take it."""
        return (await self.client.render_chat(messages, **options)).as_dict()

    @property
    def adapters(self) -> list[Adapter]:
        """The registered adapters, as in `LLM`."""
        return self.llm.adapters

    async def load_adapter(self, lora_request: LoRARequest, *, in_place: bool = False) -> Adapter:
        """Register an adapter, as `LLM.load_adapter` does, in a thread."""
        return await asyncio.to_thread(self.llm.load_adapter, lora_request, in_place=in_place)

    async def unload_adapter(self, lora_name: str) -> Adapter:
        """Forget an adapter, as `LLM.unload_adapter` does."""
        return self.llm.unload_adapter(lora_name)

    async def reset_prefix_cache(self) -> bool:
        """Drop the cached KV of ended requests; running requests are not affected. Always True, as in vLLM."""
        await self.client.reset_prefix_cache()
        return True

    @property
    def meters(self) -> EngineMetrics:
        """What was done since the AsyncLLM was made; any thread may read it."""
        return self.client.metrics

    def now(self) -> float:
        """Seconds on the engine's clock."""
        return self.client.now()

    def health(self) -> EngineHealth:
        """Whether the engine is alive and makes progress; from any thread, at any moment."""
        return self.client.health()

    async def wait_dead(self) -> EngineDeadError:
        """Wait until the engine has died, and return the reason; never returns after `close` alone."""
        return await self.client.wait_dead()

    async def close(self) -> None:
        """End the thread; running requests raise EngineDeadError. May be called again."""
        await self.client.close()

    async def __aenter__(self) -> "AsyncLLM":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
