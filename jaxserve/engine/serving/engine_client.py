"""Host: `EngineClient`, the way of prompts from coroutines into an engine that a `EngineThread` drives."""

import asyncio
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import Any

from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs, SchedulingOptions
from jaxserve.core.request import Request
from jaxserve.engine.inputs.call_inputs import only_params, read_requests, size_of
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.serving.engine_thread import EngineThread
from jaxserve.engine.serving.loop_delivery import ResultQueue
from jaxserve.engine.serving.result_stream import ResultStreams
from jaxserve.engine.tasks.embed import check_pooling, embedding_of

BRIEF = 2048  # characters, or tokens, that take less than a millisecond to read, encode and check


class EngineClient:
    """Prompts of one call are checked as a whole, and let in together or not at all.

    check: raises for a request that the engine cannot serve. Times of arrival are those of the engine's clock, by
    default now.
    """

    def __init__(self, driver: EngineThread, maker: InputProcessor, check: Callable[[Request], None]):
        self._driver, self._maker, self._check = driver, maker, check

    async def generate(
        self,
        prompts: SequenceOf[Any],
        sampling_params: Any,
        scheduling: SchedulingKwargs,
        arrival_s: float | None,
        wants_pieces: bool,
    ) -> ResultStreams:
        """What is drawn after each prompt, piece by piece or whole."""
        params = only_params(sampling_params)
        self._driver.check_room(params.n * len(prompts))
        make = partial(self._maker.make, params=params, **self._served(scheduling, arrival_s))
        return await self._enter(prompts, make, params, ResultQueue(len(prompts), wants_pieces))

    async def embed(
        self,
        prompts: SequenceOf[Any],
        pooling: str,
        normalize: bool,
        scheduling: SchedulingKwargs,
        arrival_s: float | None,
    ) -> ResultStreams:
        """Each prompt's vector."""
        check_pooling(pooling)
        self._driver.check_room(len(prompts))
        make = partial(self._maker.make_prompt_only, pooling=pooling, **self._served(scheduling, arrival_s))
        inbox = ResultQueue(len(prompts), False, lambda job: lambda: embedding_of(job.sequences[0], normalize))
        return await self._enter(prompts, make, None, inbox)

    def _served(self, options: SchedulingKwargs, arrival_s: float | None) -> dict[str, Any]:
        named: dict[str, Any] = {**options}
        return {
            "scheduling": SchedulingOptions(**named),
            "arrival_s": self._maker.clock() if arrival_s is None else arrival_s,
        }

    async def _enter(
        self, prompts: SequenceOf[Any], make: Callable[..., Request], params: SamplingParams | None, inbox: ResultQueue
    ) -> ResultStreams:
        """What is long is read elsewhere than in the event loop."""
        read = partial(read_requests, prompts, self._maker, make, self._check)
        is_brief = size_of(prompts, params) <= BRIEF
        token_ids, requests = read() if is_brief else await asyncio.to_thread(read)
        self._driver.submit([(waiter, *asked) for waiter, asked in zip(inbox.waiters, requests, strict=True)])
        return ResultStreams(self._driver, inbox, token_ids)
