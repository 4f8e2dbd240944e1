"""Wiring: `LoadedModel`: loading, warm-up, statistics, weights and saving of one engine."""

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.core.progress_bars import LoadBar
from jaxserve.engine.build.build import EngineParts, build
from jaxserve.engine.build.engine_weights import save_model, update_weights
from jaxserve.engine.build.packing.packing_report import packing_text
from jaxserve.engine.build.warm_up import warmed_up
from jaxserve.engine.inputs.chat_renderer import ChatRenderer
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.scheduler.stats import SchedulerStats
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Stats(SchedulerStats):
    """`SchedulerStats`; num_executables: programs compiled so far. num_reads: steps read back, each awaited once."""

    num_executables: int
    num_reads: int


class LoadedModel:
    """An engine with its configuration.

    parts: the engine, the runner and what else it was built from, for inspection and for driving them by hand.
    chats: renders conversations.
    """

    config: EngineConfig
    parts: EngineParts
    chats: ChatRenderer

    def __init__(self, model: str | os.PathLike[str], **options: Any):
        self._load(EngineConfig.create(model, **options), show_progress=sys.stderr.isatty())

    @classmethod
    def from_config(cls, config: EngineConfig, *, show_progress: bool = False) -> Self:
        """As the constructor, from a configuration that was read elsewhere."""
        loaded = cls.__new__(cls)
        loaded._load(config, show_progress=show_progress)
        return loaded

    @classmethod
    def from_parts(cls, config: EngineConfig, parts: EngineParts) -> Self:
        """Over an engine that was built elsewhere."""
        loaded = cls.__new__(cls)
        loaded._use(config, parts)
        return loaded

    def _load(self, config: EngineConfig, *, show_progress: bool) -> None:
        with LoadBar(show_progress) as bar:
            self._use(config, build(config, bar.update))
        if show_progress:
            print(self._description(), file=sys.stderr)

    def _use(self, config: EngineConfig, parts: EngineParts) -> None:
        self.config, self.parts = config, parts
        tokenizer = parts.tokenizer
        detokenizer = None if tokenizer is None else Detokenizer(tokenizer, parts.model.vocab_size)
        self._outputs = OutputProcessor(parts.engine, detokenizer)
        self.chats = ChatRenderer(parts.text.chat_template, tokenizer)

    def _description(self) -> str:
        """One line: what was built, and the sizes that the configuration left open."""
        parts, model = self.parts, self.parts.runner.settings.model
        sizes = parts.sizes
        device = model.mesh.devices.flat[0]
        weights = f"{model.dtype} {packing_text(model.packing)}".rstrip()
        lost = f" ({sizes.lost_pages} fewer than planned: memory ran out)" if sizes.lost_pages else ""
        return (
            f"jaxserve: {parts.model.family} on {model.mesh.size} {device.platform} device(s), "
            f"{weights}, context {sizes.max_model_len}, {sizes.max_num_seqs} sequences, "
            f"{sizes.num_pages} pages of {sizes.page_size} positions{lost}"
        )

    @property
    def output_processor(self) -> OutputProcessor:
        """Adds requests to the engine and steps it; raises RuntimeError while an `AsyncLLM` drives it."""
        self._outputs.check_caller()
        return self._outputs

    def get_tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer, None where it has none."""
        return self.parts.tokenizer

    @property
    def stats(self) -> Stats:
        """Counters since the engine was built."""
        runner, counts = self.parts.runner, asdict(self.parts.engine.scheduler.stats)
        return Stats(**counts, num_executables=len(runner.executables), num_reads=runner.num_reads)

    def warm_up(self, *, use_tqdm: bool = True) -> None:
        """Compile every bucket now and refuse all other shapes from then on.

        If memory does not suffice, the pool shrinks: `parts` is replaced and standard error reports the new size.
        """
        self._outputs.check_caller()
        parts = warmed_up(self.config, self.parts, show_progress=use_tqdm)
        if parts is not self.parts:
            self._use(self.config, parts)

    @property
    def adapters(self) -> list[Adapter]:
        """The registered adapters, in the order in which they were; any thread may read it."""
        return list(self.parts.input_processor.adapters)

    def load_adapter(self, lora_request: LoRARequest, *, in_place: bool = False) -> Adapter:
        """Register an adapter, which any call may name from then on; blocks while its files are read and checked.

        in_place: another one of this name is replaced; requests that were admitted before keep it. Raises RequestError
        for files that cannot be served, and for a name that another path has unless in_place. Any thread may call it,
        while an AsyncLLM drives the engine, too.
        """
        return self.parts.input_processor.adapters.load(lora_request, in_place=in_place)

    def unload_adapter(self, lora_name: str) -> Adapter:
        """Forget an adapter; requests that were admitted before keep it. Raises RequestError for an unknown name."""
        return self.parts.input_processor.adapters.unload(lora_name)

    def reset_prefix_cache(self) -> bool:
        """Drop the cached KV of ended requests. Always True, as in vLLM."""
        with self.output_processor.exclusive() as engine:
            engine.scheduler.reset_prefix_cache()
        return True

    def update_weights(self, params: Any) -> None:
        """Serve all later requests with other weights: a tree like `parts.runner.params`, of device or numpy arrays.

        Nothing is cast or compiled anew. Raises RequestError for a leaf that does not fit, by name and before anything
        changes, and while requests are running.
        """
        self._outputs.check_caller()
        update_weights(self.parts, params)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the current weights, configuration and tokenizer as an Orbax folder for `LLM(folder)`, on any mesh.

        Packed weights are written as they are. The folder must be empty or not exist.
        """
        self._outputs.check_caller()
        save_model(self.parts, Path(folder))
