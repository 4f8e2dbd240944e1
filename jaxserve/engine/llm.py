"""Wiring: `LLM`: the offline interface: prompts in, texts out, in the order of the prompts."""

from collections.abc import Generator, Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any, Unpack

import numpy as np

from jaxserve.core.options.beam_search_params import BeamSearchParams
from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.core.outputs import BeamSearchOutput, EmbeddingRequestOutput, RequestOutput, ScoreOutput
from jaxserve.core.request import Request
from jaxserve.engine.inputs.chat_renderer import (
    CHAT_PARAMS,
    ChatCallOptions,
    ChatOptions,
    read_conversations,
    split_options,
)
from jaxserve.engine.inputs.per_prompt import only_params, params_for, scheduling_for
from jaxserve.engine.inputs.prompt import Prompt, read_only_prompt, read_prompts
from jaxserve.engine.inputs.request_adapters import read_lora_requests
from jaxserve.engine.loaded_model import LoadedModel
from jaxserve.engine.outputs.run_to_completion import complete, pieces
from jaxserve.engine.tasks.admission import admit
from jaxserve.engine.tasks.beam_search import beam_search
from jaxserve.engine.tasks.embed import embed
from jaxserve.engine.tasks.hidden_states import hidden_states
from jaxserve.engine.tasks.score import score

LoraRequests = LoRARequest | SequenceOf[LoRARequest | None] | None


class LLM(LoadedModel):
    """A model ready to complete prompts.

    >>> llm = LLM("smollm2-135m-instruct")
    >>> llm.generate("The capital of France is", SamplingParams(temperature=0))[0].outputs[0].text

    Options are the fields of `EngineConfig`, vLLM's names included; an option that cannot be honored raises
    `ConfigError` naming it. Shapes are compiled when they are first needed, until `warm_up` has compiled all of them.

    Threads may share an `LLM`: their requests run in one batch. Requests without a seed get theirs in the order in
    which calls are admitted. An interrupt (Ctrl-C) ends the requests of its call, after the step in progress.
    """

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        *,
        lora_request: LoraRequests = None,
        use_tqdm: bool = True,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> list[RequestOutput]:
        """Complete each prompt; one result per prompt, in order.

        prompts: text, a list of token ids, a dict with `prompt` or `prompt_token_ids`, or a list of those; a dict may
        have a `cache_salt`: only prompts with an equal one share cached prefixes. sampling_params: for all prompts, or
        one per prompt. lora_request: the adapter of all prompts, or a list with one or None per prompt; one that is not
        registered yet is read and checked first (`load_adapter`). scheduling: priority, tenant, queue_timeout_s and
        deadline_s, as `SchedulingOptions` describes them, each for all prompts, or a list with one per prompt. Raises
        RequestError (a ValueError) naming the prompt and the parameter before anything runs, and QueueFullError where
        the queue does not take all prompts. A sample whose logits are not finite, or that bad_words leave no token
        (stop_reason says so), ends with finish_reason "error", a late one with "timeout"; if the device fails,
        EngineDeadError is raised and the engine must be built anew.
        """
        outputs = self.output_processor
        requests = self.admit(read_prompts(prompts), sampling_params, scheduling, lora_request=lora_request)
        return complete(outputs, requests, use_tqdm)

    def chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        *,
        lora_request: LoraRequests = None,
        use_tqdm: bool = True,
        **options: Unpack[ChatCallOptions],
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of a list of them; one result per conversation, in order.

        messages: a list of dicts with `role` and `content`. sampling_params: for all, or one per conversation; by
        default an answer may fill the context. lora_request: as in `generate`. options: those of `render_chat`, and the
        scheduling options of `generate`. Raises as that does.
        """
        outputs = self.output_processor
        rendering, scheduling = split_options(options)
        prompts = self.chats.prompts(read_conversations(messages), **rendering)
        params = CHAT_PARAMS if sampling_params is None else sampling_params
        requests = self.admit(prompts, params, scheduling, lora_request=lora_request, noun="conversation")
        return complete(outputs, requests, use_tqdm)

    def render_chat(self, messages: Any, **options: Unpack[ChatOptions]) -> dict[str, Any]:
        """The prompt that `chat` makes of one conversation, as `generate` and `stream` take it: text and token ids.

        options, as `ChatRenderer.prompts` describes them: chat_template, add_generation_prompt,
        continue_final_message, tools, chat_template_kwargs, max_model_len.
        """
        (prompt,) = self.chats.prompts([messages], **options)
        return prompt.as_dict()

    def stream(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        *,
        lora_request: LoRARequest | None = None,
        **scheduling: Unpack[SchedulingKwargs],
    ) -> Generator[RequestOutput, None, None]:
        """Complete one prompt piece by piece: each result holds the text, tokens and log-probabilities that are new.

        Texts come in whole characters and without what may become a stop string; the last result is `finished`. The
        request runs while anything steps the engine: this iterator, another one, or `generate`. Leaving the loop, or
        closing the iterator, aborts it. lora_request, scheduling: as in `generate`. Bad input raises RequestError at
        once; a full queue raises QueueFullError, at once or with the first `next`.
        """
        outputs = self.output_processor
        (request,) = self.admit(
            [read_only_prompt(prompt)], only_params(sampling_params), scheduling, lora_request=lora_request
        )
        return pieces(outputs, request)

    def beam_search(
        self, prompts: Any, params: BeamSearchParams, *, lora_request: LoraRequests = None, use_tqdm: bool = True
    ) -> list[BeamSearchOutput]:
        """Search for the likeliest texts after each prompt, as transformers does; the best first, results in order.

        prompts, lora_request: as `generate` takes them. Texts of one prompt share the pages of their common prefix.
        Raises RequestError naming prompt and parameter before anything runs: a beam_width needs as many sequences at
        once (max_num_seqs) and at least twice as many log-probabilities (max_logprobs). Where logits are not finite,
        that prompt's search ends alone, with finish_reason "error".
        """
        outputs, parts = self.output_processor, self.parts
        max_num_seqs = parts.sizes.max_num_seqs
        return beam_search(
            outputs,
            parts.input_processor,
            prompts,
            params,
            max_num_seqs=max_num_seqs,
            lora_request=lora_request,
            use_tqdm=use_tqdm,
        )

    def score(self, pairs: Any, *, lora_request: LoraRequests = None, use_tqdm: bool = True) -> list[ScoreOutput]:
        """Log-probabilities of each continuation after its context; nothing is drawn; results in order.

        pairs: a list of (context, continuation), each text or token ids. A context that several pairs share is computed
        once. Two texts are encoded as one and cut where the context ends; spaces at its end go to the continuation.
        lora_request: the adapter of all pairs, or a list with one or None per pair. Raises RequestError naming the pair
        before anything runs.
        """
        outputs, inputs = self.output_processor, self.parts.input_processor
        return score(outputs, inputs, pairs, lora_request=lora_request, use_tqdm=use_tqdm)

    def embed(
        self,
        prompts: Any,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        lora_request: LoraRequests = None,
        use_tqdm: bool = True,
    ) -> list[EmbeddingRequestOutput]:
        """A vector for each prompt from the hidden states after the final norm; results in order.

        prompts, lora_request: as `generate` takes them. pooling: the "mean" over the prompt's tokens, or the "last"
        token's. normalize: to length 1. Raises RequestError naming the prompt before anything runs.
        """
        outputs, inputs = self.output_processor, self.parts.input_processor
        return embed(
            outputs,
            inputs,
            prompts,
            pooling=pooling,
            normalize=normalize,
            lora_request=lora_request,
            use_tqdm=use_tqdm,
        )

    def hidden_states(self, prompts: Any, layers: SequenceOf[int] | int = (-1,)) -> list[np.ndarray]:
        """Hidden states of each prompt: float32 [len(layers), T, D] per prompt, in order.

        prompts: as `generate` takes them. layers: numbers, or one, of the L + 1 states of a model of L layers: 0 the
        embeddings, i the input of layer i, L (or -1) the output after the final norm. Runs outside the engine's steps,
        with its weights, without adapters.
        """
        self._outputs.check_caller()
        runner, inputs = self.parts.runner, self.parts.input_processor
        return hidden_states(runner.settings.model, runner.params, inputs, read_prompts(prompts), layers)

    def admit(
        self,
        prompts: SequenceOf[Prompt],
        sampling_params: Any = None,
        scheduling: Mapping[str, Any] | None = None,
        *,
        lora_request: LoraRequests = None,
        noun: str = "prompt",
    ) -> list[Request]:
        """Checked and numbered requests that the queue has room for, for `output_processor.add`.

        sampling_params, lora_request, scheduling: as `generate` takes them; raises as `generate` does. noun: what
        errors call a prompt.
        """
        count, inputs = len(prompts), self.parts.input_processor
        params, options = params_for(sampling_params, count, noun), scheduling_for(scheduling or {}, count, noun)
        lora_requests = read_lora_requests(lora_request, count, noun)
        requests = inputs.requests(prompts, params, options, lora_requests=lora_requests, noun=noun)
        return admit(self.output_processor, inputs, requests)
