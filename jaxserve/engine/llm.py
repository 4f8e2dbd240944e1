"""Wiring: `LLM`, the offline interface: prompts in, texts out, in the order of the prompts."""

import os
import sys
from collections.abc import Generator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from jaxserve.core.options.beam_search_params import BeamSearchParams
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.core.outputs import BeamSearchOutput, EmbeddingRequestOutput, RequestOutput, ScoreOutput
from jaxserve.core.progress_bars import LoadBar
from jaxserve.core.request import Request
from jaxserve.engine.build.build import EngineParts, build
from jaxserve.engine.build.engine_weights import save_model, update_weights
from jaxserve.engine.build.warm_up import warmed_up
from jaxserve.engine.inputs.chat_renderer import (
    CHAT_PARAMS,
    ChatCallOptions,
    ChatOptions,
    ChatRenderer,
    read_conversations,
    split_options,
)
from jaxserve.engine.inputs.per_prompt import only_params, params_for, scheduling_for
from jaxserve.engine.inputs.prompt import Prompt, read_only_prompt, read_prompts, token_ids
from jaxserve.engine.outputs.output_processor import OutputProcessor
from jaxserve.engine.outputs.run_to_completion import complete, pieces
from jaxserve.engine.tasks.beam_search import beam_search
from jaxserve.engine.tasks.embed import embed
from jaxserve.engine.tasks.hidden_states import hidden_states
from jaxserve.engine.tasks.score import score
from jaxserve.scheduler.stats import SchedulerStats
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Stats(SchedulerStats):
    """As `SchedulerStats`; num_executables: programs compiled so far. num_reads: steps read back, each awaited once."""

    num_executables: int
    num_reads: int


class LLM:
    """A model ready to complete prompts.

    >>> llm = LLM("smollm2-135m-instruct")
    >>> llm.generate("The capital of France is", SamplingParams(temperature=0))[0].outputs[0].text

    Options are the fields of `EngineConfig`, vLLM's names included; what cannot be honoured raises `ConfigError`
    naming it. Shapes are compiled when they are first needed, until `warm_up` has compiled all of them. `parts` are the
    engine, the runner and what else it was built from, for inspection and for driving them by hand.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any):
        self._load(EngineConfig.create(model, **options), show_progress=sys.stderr.isatty())

    @classmethod
    def from_config(cls, config: EngineConfig, *, show_progress: bool = False) -> "LLM":
        llm = cls.__new__(cls)
        llm._load(config, show_progress=show_progress)
        return llm

    @classmethod
    def from_parts(cls, config: EngineConfig, parts: EngineParts) -> "LLM":
        """Over an engine that was built elsewhere."""
        llm = cls.__new__(cls)
        llm._take(config, parts)
        return llm

    def _load(self, config: EngineConfig, *, show_progress: bool) -> None:
        with LoadBar(show_progress) as bar:
            self._take(config, build(config, bar.update))
        if show_progress:
            print(self._description(), file=sys.stderr)

    def _take(self, config: EngineConfig, parts: EngineParts) -> None:
        self.config, self.parts = config, parts
        tokenizer = parts.tokenizer
        detokenizer = None if tokenizer is None else Detokenizer(tokenizer, parts.model.vocab_size)
        self._outputs = OutputProcessor(parts.engine, detokenizer)
        self.chats = ChatRenderer(parts.chat_template, tokenizer)

    def _description(self) -> str:
        """One line: what was built, and the sizes that were left open."""
        built = self.parts
        mesh, limits = built.runner.settings.model.mesh, built.limits
        lost = f" ({limits.lost_pages} fewer than planned: memory ran out)" if limits.lost_pages else ""
        return (
            f"jaxserve: {built.model.family} on {mesh.size} {mesh.devices.flat[0].platform} device(s), "
            f"{built.runner.settings.model.dtype}, context {limits.max_model_len}, {limits.max_num_seqs} sequences, "
            f"{limits.num_pages} pages of {limits.page_size} positions{lost}"
        )

    @property
    def output_processor(self) -> OutputProcessor:
        """Starts requests and steps the engine; refused while an `AsyncLLM` drives it."""
        self._outputs.check_caller()
        return self._outputs

    def admit(
        self, prompts: SequenceOf[Prompt], sampling_params: Any, scheduling: Mapping[str, Any], *, noun: str = "prompt"
    ) -> list[Request]:
        """Checked and numbered requests, for which the queue has room, to be started next.

        sampling_params, scheduling: as `generate` takes them, and errors as it raises them; `noun` is how they call a
        prompt.
        """
        count, inputs = len(prompts), self.parts.input_processor
        params, options = params_for(sampling_params, count, noun), scheduling_for(scheduling, count, noun)
        requests = inputs.requests(prompts, params, options, noun=noun)
        with self.output_processor.exclusive() as engine:
            engine.live().check(requests)
        return list(inputs.numbered(requests, inputs.arrive(requests)))

    def get_tokenizer(self) -> Tokenizer | None:
        return self.parts.tokenizer

    @property
    def stats(self) -> Stats:
        """Counters since the engine was built."""
        runner, counts = self.parts.runner, asdict(self.parts.engine.scheduler.stats)
        return Stats(**counts, num_executables=len(runner.executables), num_reads=runner.num_reads)

    def warm_up(self, *, use_tqdm: bool = True) -> None:
        """Compile every bucket now and refuse all other shapes from then on.

        Where memory turns out not to suffice, the pool shrinks: `parts` are then new ones, and standard error tells.
        """
        self._outputs.check_caller()
        parts = warmed_up(self.config, self.parts, show_progress=use_tqdm)
        if parts is not self.parts:
            self._take(self.config, parts)

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> list[RequestOutput]:
        """Complete each prompt; one result a prompt, in order.

        prompts: text, a list of token ids, a dict with `prompt` or `prompt_token_ids`, or a list of those; a dict may
        have a `cache_salt`, without which nobody finds what is cached of its beginning. sampling_params: for all
        prompts, or one a prompt. scheduling: priority, tenant, queue_timeout_s and deadline_s, as `SchedulingOptions`
        describes them, each for all prompts, or a list of one a prompt. Raises RequestError (a ValueError) naming the
        prompt and the parameter before anything runs, and QueueFullError where the queue does not take all prompts. A
        sample whose
        logits are not finite ends with finish_reason "error", one that is late with "timeout"; if the device fails,
        EngineDeadError is raised and the engine must be built anew.
        """
        outputs = self.output_processor
        return complete(outputs, self.admit(read_prompts(prompts), sampling_params, scheduling), use_tqdm)

    def chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        **options: Unpack[ChatCallOptions],
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of a list of them; one result a conversation, in order.

        messages: a list of dicts with `role` and `content`. sampling_params: for all, or one a conversation; by default
        an answer may fill the context. options: those of `render_chat`, and how to be served, as in `generate`. Raises
        as that does.
        """
        outputs = self.output_processor
        rendering, scheduling = split_options(options)
        prompts = self.chats.prompts(read_conversations(messages), **rendering)
        params = CHAT_PARAMS if sampling_params is None else sampling_params
        return complete(outputs, self.admit(prompts, params, scheduling, noun="conversation"), use_tqdm)

    def render_chat(self, messages: Any, **options: Unpack[ChatOptions]) -> dict[str, Any]:
        """The prompt that `chat` makes of one conversation, as `generate` and `stream` take it: text and token ids.

        options, as `ChatRenderer.prompts` describes them: chat_template, add_generation_prompt,
        continue_final_message, tools, chat_template_kwargs, max_model_len.
        """
        (prompt,) = self.chats.prompts([messages], **options)
        return prompt.as_dict()

    def stream(
        self, prompt: Any, sampling_params: SamplingParams | None = None, **scheduling: Unpack[SchedulingKwargs]
    ) -> Generator[RequestOutput, None, None]:
        """Complete one prompt piece by piece: each result holds the text, tokens and log-probabilities that are new.

        Texts come in whole characters and without what may become a stop string; the last result is `finished`. The
        request runs while somebody steps: this iterator, another one, or `generate`; to leave the loop (or to close the
        iterator) aborts it. scheduling: as in `generate`. Bad input raises RequestError at once.
        """
        outputs = self.output_processor
        (request,) = self.admit([read_only_prompt(prompt)], only_params(sampling_params), scheduling)
        return pieces(outputs, request)

    def beam_search(self, prompts: Any, params: BeamSearchParams, *, use_tqdm: bool = True) -> list[BeamSearchOutput]:
        """Search for the likeliest texts after each prompt, as transformers does; the best first, results in order.

        prompts: as `generate` takes them. Texts of one prompt share the pages of what they have in common. Raises
        RequestError naming prompt and parameter before anything runs: a beam_width needs as many sequences at once
        (max_num_seqs) and at least twice as many log-probabilities (max_logprobs). Where logits are not finite, that
        prompt's search ends alone, with finish_reason "error".
        """
        limits = {"max_num_seqs": self.parts.limits.max_num_seqs}
        return beam_search(
            self.output_processor, self.parts.input_processor, prompts, params, **limits, use_tqdm=use_tqdm
        )

    def score(self, pairs: Any, *, use_tqdm: bool = True) -> list[ScoreOutput]:
        """How likely each continuation is after its context: log-probabilities, nothing drawn; results in order.

        pairs: a list of (context, continuation), each text or token ids. A context that several pairs share is computed
        once. Two texts are encoded as one and cut where the context ends; spaces at its end go to the continuation.
        Raises RequestError naming the pair before anything runs.
        """
        return score(self.output_processor, self.parts.input_processor, pairs, use_tqdm=use_tqdm)

    def embed(
        self, prompts: Any, *, pooling: str = "mean", normalize: bool = True, use_tqdm: bool = True
    ) -> list[EmbeddingRequestOutput]:
        """A vector for each prompt from the hidden states after the final norm; results in order.

        prompts: as `generate` takes them. pooling: the "mean" over the prompt's tokens, or the "last" one's. normalize:
        to length 1. Raises RequestError naming the prompt before anything runs.
        """
        options = {"pooling": pooling, "normalize": normalize, "use_tqdm": use_tqdm}
        return embed(self.output_processor, self.parts.input_processor, prompts, **options)

    def hidden_states(self, prompts: Any, layers: SequenceOf[int] = (-1,)) -> list[np.ndarray]:
        """What layers see of each prompt: float32 [len(layers), T, D] a prompt, in order.

        prompts: as `generate` takes them. layers: of the L + 1 states of a model of L layers: 0 the embeddings, i the
        input of layer i, L (or -1) the output after the final norm. Runs beside the engine, with its weights.
        """
        self._outputs.check_caller()
        return hidden_states(self.parts, token_ids(read_prompts(prompts), self.get_tokenizer()), layers)

    def reset_prefix_cache(self) -> bool:
        """Forget the KV that is kept of requests that have ended; True, as in vLLM: nothing can keep it from that."""
        with self.output_processor.exclusive() as engine:
            engine.scheduler.reset_prefix_cache()
        return True

    def update_weights(self, params: Any) -> None:
        """Serve all later requests with other weights: a tree like `parts.runner.params`, of device or numpy arrays.

        Nothing is cast or compiled anew. Raises RequestError for a leaf that does not fit, by name and before anything
        changes, and while requests are under way.
        """
        self._outputs.check_caller()
        update_weights(self.parts, params)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the weights as they are now, with configuration and tokenizer: an Orbax folder for `LLM(folder)`, on
        any mesh. The folder must be empty or not exist."""
        self._outputs.check_caller()
        save_model(self.parts, Path(folder))
