"""`LLM` over the fake runner: real scheduler, outputs and text, no arrays; bytes are tokens, so any text can appear."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from jaxserve.core.buckets import make_buckets, with_verify
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.engine.build.build import EngineParts
from jaxserve.engine.build.model_text import ModelText
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.inputs.request_adapters import Adapters
from jaxserve.engine.llm import LLM
from jaxserve.engine.loop.engine import Engine
from jaxserve.runner.fake.fake_model import FakeModel, extend_prefix
from jaxserve.runner.fake.fake_runner import FakeRunner
from jaxserve.scheduler.constraints import GrammarMatchers
from jaxserve.scheduler.policy.policies import make_policy
from jaxserve.scheduler.queue_limits import QueueLimits
from jaxserve.scheduler.scheduler import Scheduler
from jaxserve.scheduler.speculation import Speculation
from jaxserve.text.chat_template import ChatTemplate
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import byte_level
from tests.support.fakes.fake_adapters import MAX_PAGES

NUM_PAGES, MAX_MODEL_LEN, PAGE = 200, 96, 4
PLAIN_TEMPLATE = (
    "{{ bos_token }}{% for tool in tools or [] %}({{ tool.function.name }}){% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Reciter(FakeModel):
    """Generates one text over and over, sample i from its i-th byte on, for any prompt."""

    said: str = "a"

    def draw(self, prefix, seed, index, position, is_allowed):
        data = self.said.encode()
        return data[(position + index) % len(data)]


@dataclass(frozen=True, slots=True)
class Speaker(FakeModel):
    """Says one of its texts after any prompt, then ends: the one whose number is the request's seed.

    said: texts, or token ids where a text has special tokens.
    """

    said: tuple[str | list[int], ...] = ("a",)
    end: int = 261
    _at: dict[tuple[int, int], int] = field(default_factory=dict)  # tokens said, by seed and hash of all before

    def draw(self, prefix, seed, index, position, is_allowed):
        said = self.said[seed]
        tokens = [*(said.encode() if isinstance(said, str) else said), self.end]
        at = min(self._at.get((seed, prefix), 0), len(tokens) - 1)  # a step may be in flight when a text ends
        self._at[seed, extend_prefix(prefix, tokens[at])] = at + 1
        return tokens[at]


@cache
def _tokenizer() -> Tokenizer:
    return tokenizer_from_gguf(byte_level(eos_token_id=261))


def fake_llm(
    model: FakeModel | None = None,
    *,
    template: str | None = PLAIN_TEMPLATE,
    max_num_seqs: int = 8,
    num_pages: int = NUM_PAGES,
    max_logprobs: int = 5,
    seed: int = 0,
    policy: str = "fcfs",
    queue_limits: QueueLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
    generation_config: dict[str, Any] | None = None,
    prefix_eviction: str | None = None,
    tokenizer: Tokenizer | None = None,
    skip_tokenizer_init: bool = False,
    max_drafts: int = 0,
    check_grammar: Callable[[StructuredOutputsParams], None] | None = None,
    max_model_len: int = MAX_MODEL_LEN,
    matchers: GrammarMatchers | None = None,
    adapters: Adapters | None = None,
) -> LLM:
    """A model of 264 tokens (`small_vocab.byte_level`) with a context of 96."""
    adapters = adapters or Adapters()
    tokenizer = tokenizer or _tokenizer()
    loaded = None if skip_tokenizer_init else tokenizer
    model = model or FakeModel(tokenizer.vocab_size)
    buckets = make_buckets(max_num_seqs, 32, max_model_len // PAGE)
    buckets = with_verify(buckets, max_drafts) if max_drafts else buckets
    groups, order = KVGroups((None,), PAGE), make_policy(policy)
    scheduler = Scheduler(
        groups,
        buckets,
        num_pages=num_pages,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=32,
        max_model_len=max_model_len,
        vocab_size=tokenizer.vocab_size,
        policy=order,
        queue_limits=queue_limits,
        prefix_eviction=prefix_eviction,
        speculation=Speculation(max_num_seqs) if max_drafts else None,
        num_draft_masks=buckets.most_drafts,
        matchers=matchers,
        adapters=adapters.store,
        max_loras=adapters.max_loras,
        max_adapter_pages=0 if adapters.store is None else MAX_PAGES,
    )
    runner = FakeRunner(
        model,
        groups,
        num_slots=max_num_seqs,
        num_pages=num_pages,
        max_model_len=max_model_len,
        max_logprobs=max_logprobs,
    )
    input_processor = InputProcessor(
        tokenizer=loaded,
        eos_ids=tokenizer.eos_ids,
        vocab_size=tokenizer.vocab_size,
        max_model_len=max_model_len,
        has_drafts=max_drafts > 0,
        max_logprobs=max_logprobs,
        max_edits=300,
        seed=seed,
        scheduling_fields=order.fields,
        check_grammar=check_grammar,
        adapters=adapters,
        clock=clock,
    )
    text = ModelText(loaded, ChatTemplate(template, {"bos_token": "<|im_end|>"}), generation_config or {})
    parts: Any = SimpleNamespace(
        engine=Engine(scheduler, cast(Any, runner), clock=clock),
        runner=runner,
        tokenizer=loaded,
        text=text,
        input_processor=input_processor,
        model=SimpleNamespace(vocab_size=tokenizer.vocab_size),
        sizes=SimpleNamespace(max_num_seqs=max_num_seqs, max_model_len=max_model_len),
    )
    return LLM.from_parts(EngineConfig.create("fake"), cast(EngineParts, parts))


def num_pages_free(llm: LLM) -> int:
    return llm.parts.engine.scheduler.stats.num_pages_free


def all_pages_are_back(llm: LLM) -> bool:
    """Adapters without users keep theirs."""
    state = llm.parts.engine.scheduler.state
    num_idle = 0 if state.adapters is None else state.adapters.num_idle_pages
    return num_pages_free(llm) + num_idle == state.pool.num_pages - 1 and not llm.parts.engine.has_work
