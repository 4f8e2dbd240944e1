"""Host: `EngineClient`: all that servers and coroutines see of an engine, which an `EngineThread` drives."""

import asyncio
import weakref
from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Unpack, cast

from jaxserve.core.errors import EngineDeadError, RequestError
from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.core.outputs import EmbeddingRequestOutput, RequestOutput
from jaxserve.core.request import Request
from jaxserve.engine.inputs.chat_renderer import ChatOptions, ChatRenderer
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.inputs.per_prompt import scheduling_for
from jaxserve.engine.inputs.prompt import Prompt, prompt_size, read_only_prompt, read_prompt
from jaxserve.engine.inputs.request_adapters import read_lora_requests
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.serving.engine_info import engine_info
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.engine.serving.engine_thread import EngineThread
from jaxserve.engine.serving.messages import Add, Call
from jaxserve.engine.serving.offload import offload
from jaxserve.engine.serving.result_stream import ResultStream
from jaxserve.engine.serving.snapshot import Snapshot, snapshot
from jaxserve.engine.serving.watchdog import EngineHealth
from jaxserve.engine.tasks.embed import check_pooling
from jaxserve.scheduler.stats import SchedulerStats

MAX_INLINE_CHARS = 2048  # or tokens, which are read, encoded and checked within a millisecond
REQUEST_SIZE = 100  # making a request takes as long as reading so many characters
NUM_WAITING_THREADS = 32  # they wait for grammars that are compiled elsewhere, and for the files of adapters


class EngineClient:
    """Queues requests: the prompts of one call are checked together, and accepted all or none. A call with many prompts
    finds room where the largest of them does alone; they join the queue as there is room (`Backlog`).

    No method waits for a step, unless its description says so. Methods may be called from several event loops at once.
    The engine's thread ends by `close`, or when nothing refers to the client any more.

    info: what does not change. metrics: counters since the client was made, readable from any thread. tokenizer,
    detokenizer: None where the model has no tokenizer. adapters: to load and unload them, from any thread.
    """

    def __init__(
        self,
        outputs: OutputProcessor,
        inputs: InputProcessor,
        chats: ChatRenderer,
        generation_config: Mapping[str, Any],
    ):
        self._engine, self._inputs, self._chats = outputs.engine, inputs, chats
        self._thread = EngineThread(outputs, inputs)
        self._num_keys = 0
        self._waiting_threads = ThreadPoolExecutor(NUM_WAITING_THREADS, "waiting")
        self.info = engine_info(outputs.engine.scheduler, chats.template, generation_config)
        self.metrics: EngineMetrics = self._thread.metrics
        self.adapters = inputs.adapters
        self.tokenizer, self.detokenizer = inputs.tokenizer, outputs.detokenizer
        weakref.finalize(self, self._thread.close).atexit = False  # `EngineThread` has its own atexit handler

    def now(self) -> float:
        """Seconds on the engine's clock."""
        return self._inputs.clock()

    def check_room(self, num_samples: int = 1) -> None:
        """Raise as `generate` would for any prompts of so many samples each, before they are read."""
        self._thread.check_alive()
        self._thread.admission.check(num_samples, num_samples)

    async def generate(
        self,
        prompts: SequenceOf[Any],
        params: SamplingParams,
        *,
        wants_pieces: bool,
        arrival_s: float | None = None,
        lora_request: LoRARequest | Adapter | None = None,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> ResultStream[RequestOutput]:
        """Admit prompts, each a `Prompt` or in any form that `LLM.generate` takes.

        wants_pieces: results come piece by piece, as those of `LLM.stream`. arrival_s: when the call came, by `now`.
        lora_request: the adapter of all prompts; one that is not registered yet is, in a thread. Raises RequestError,
        QueueFullError and EngineDeadError; nothing has happened then.
        """
        return await self._submit(prompts, params, scheduling, arrival_s, lora_request, wants_pieces=wants_pieces)

    async def embed(
        self,
        prompts: SequenceOf[Any],
        *,
        pooling: str = "mean",
        normalize: bool = True,
        arrival_s: float | None = None,
        lora_request: LoRARequest | Adapter | None = None,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> list[EmbeddingRequestOutput]:
        """A vector for each prompt, as `LLM.embed` makes them; raises as `generate`, and LateError after a deadline."""
        check_pooling(pooling)
        results: ResultStream[EmbeddingRequestOutput] = await self._submit(
            prompts, None, scheduling, arrival_s, lora_request, pooling=pooling, is_normalized=normalize
        )
        try:
            found = dict([await results.next_indexed() for _ in prompts])
            return [found[i] for i in range(len(prompts))]
        finally:
            results.abort()

    async def render_chat(self, messages: Any, **options: Unpack[ChatOptions]) -> Prompt:
        """The prompt of one conversation; options and errors: those of `ChatRenderer.prompts`."""
        (prompt,) = await asyncio.to_thread(self._chats.prompts, [messages], **options)
        return prompt

    def stats(self) -> SchedulerStats:
        """The scheduler's counters now."""
        return self._engine.scheduler.stats

    async def snapshot(self) -> Snapshot:
        """What the engine holds, after the step under way."""
        return await self.call(lambda: replace(snapshot(self._engine), num_waiting=self.metrics.num_waiting))

    async def reset_prefix_cache(self) -> None:
        """Drop the KV of ended requests, after the step under way; running requests go on undisturbed."""
        await self.call(self._engine.scheduler.reset_prefix_cache)

    async def call[T](self, function: Callable[[], T]) -> T:
        """Run a function in the engine's thread after the step under way; its result, or what it raised."""
        command = Call(function, Future())
        self._thread.commands.put(command)
        return await asyncio.wrap_future(cast("Future[T]", command.future))

    def health(self) -> EngineHealth:
        """Whether the engine is alive and makes progress; from any thread, at any moment."""
        return self._thread.health()

    async def wait_dead(self) -> EngineDeadError:
        """Wait until the engine has died, and return the reason; never returns after `close` alone."""
        return await asyncio.wrap_future(self._thread.death)

    async def close(self) -> None:
        """End the engine's thread; running requests raise EngineDeadError. May be called again."""
        await asyncio.to_thread(self._thread.close)
        self._waiting_threads.shutdown(wait=False)

    async def _submit(
        self,
        prompts: SequenceOf[Any],
        params: SamplingParams | None,
        scheduling: SchedulingKwargs,
        arrival_s: float | None,
        lora_request: LoRARequest | Adapter | None,
        *,
        pooling: str | None = None,
        wants_pieces: bool = False,
        is_normalized: bool = False,
    ) -> ResultStream[Any]:
        """Read, check and admit prompts; params None: nothing is drawn, and `pooling` names the result."""
        count = len(prompts)
        if not count:
            raise RequestError("no prompts: give at least one", "prompts")
        self.check_room(1 if params is None else params.num_sequences)
        options, listed = scheduling_for(scheduling, count), None if params is None else [params] * count
        arrival_s = self.now() if arrival_s is None else arrival_s
        lora_requests = read_lora_requests(lora_request, count)

        def make() -> list[Request]:
            return self._inputs.requests(
                _read(prompts), listed, options, lora_requests=lora_requests, pooling=pooling, arrival_s=arrival_s
            )

        size, threads = _size(prompts, params), None
        has_form = params is not None and params.constraint is not None
        if has_form or self.adapters.must_read(lora_requests):
            size, threads = size + MAX_INLINE_CHARS, self._waiting_threads
        requests = await offload(make, size, MAX_INLINE_CHARS, threads)
        return self._admit(requests, wants_pieces=wants_pieces, is_normalized=is_normalized)

    def _admit(self, requests: list[Request], *, wants_pieces: bool, is_normalized: bool) -> ResultStream[Any]:
        """Admit checked requests as the next that arrive, all or none."""
        thread = self._thread
        with thread.commands.lock:  # the order of arrival is that of the commands
            thread.check_alive()
            keys = range(self._num_keys, self._num_keys + len(requests))
            thread.admission.enter(keys.start, requests)
            self._num_keys = keys.stop
            results = ResultStream[Any](keys, thread.abort)
            thread.results.register(keys, results)
            first = self._inputs.arrive(requests)
            thread.commands.put(Add(keys, requests, first, wants_pieces, is_normalized))
        return results


def _read(prompts: SequenceOf[Any]) -> list[Prompt]:
    if len(prompts) == 1:
        return [read_only_prompt(prompts[0])]
    return [read_prompt(prompt, f"prompt {i}") for i, prompt in enumerate(prompts)]


def _size(prompts: SequenceOf[Any], params: SamplingParams | None) -> int:
    """How much there is to read and check: characters, tokens and ids."""
    size = sum(REQUEST_SIZE + prompt_size(prompt) for prompt in prompts)
    if params is not None:
        size += len(params.allowed_token_ids or ()) + sum(map(len, params.bad_words or ()))
    return size
