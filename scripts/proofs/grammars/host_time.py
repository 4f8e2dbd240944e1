"""The host's time of a step in which all rows have a grammar: an engine over a fake runner, whose time is left out.

Scheduling, commit, the masks (in their process, while the host waits: with a device its forward pass runs meanwhile),
and their uploads. Each row has a schema of its own; the fake model writes what a grammar allows of common characters.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jaxserve.runner.fake.fake_model import FakeModel, mix
from scripts.proofs.grammars.schema_set import schema_set
from scripts.proofs.helpers.laws import Law

COMMON = ' "abcdefghijklmnopqrstuvwxyz0123456789{}[]:,.-_/'
NUM_WARM, NUM_STEPS, MAX_MODEL_LEN, PAGE = 20, 150, 512, 16
ENDLESS = {"type": "array", "minItems": 1000}


@dataclass(frozen=True, slots=True)
class Writer(FakeModel):
    """Draws one of `likely` that is allowed, else the first token that is."""

    likely: tuple[int, ...] = field(default=())

    def draw(self, prefix: int, seed: int, index: int, position: int, is_allowed: Callable[[int], bool]) -> int | None:
        start = mix(prefix ^ position ^ seed) % len(self.likely)
        order = (*self.likely[start:], *self.likely[:start])
        found = next(filter(is_allowed, order), None)
        return found if found is not None else next(filter(is_allowed, range(self.vocab_size)), None)


def host_time(model: str) -> list[Law]:
    """p50 and p99 by the number of rows, with the tokenizer of a model."""
    from scripts.benchmarks.host.empty_model_engine import tokenizer_of

    tokenizer, laws = tokenizer_of(model), list[Law]()
    for num_rows in (64, 256):
        steps_ms, masks_ms, forced = _steps(tokenizer, num_rows)
        name = f"{num_rows} rows, vocabulary of {tokenizer.vocab_size:,}"
        for part, took_ms in (("host time of a step", steps_ms), ("of it for masks, which a device hides", masks_ms)):
            p50, p99 = np.percentile(took_ms, [50, 99])
            laws.append((f"{name}: {part} in ms, p50", float(p50), None, None))
            laws.append((f"{name}: {part} in ms, p99", float(p99), None, None))
        laws.append((f"{name}: tokens that were forced, of 100", forced, None, None))
    return laws


def _steps(tokenizer, num_rows: int) -> tuple[list[float], list[float], float]:
    """Times of steps and of the masks of each, and how many of 100 tokens were forced."""
    from jaxserve.constrained.grammar_compiler import GrammarCompiler
    from jaxserve.constrained.matchers import Matchers
    from jaxserve.core.errors import RequestError
    from jaxserve.core.options.sampling_params import SamplingParams
    from jaxserve.core.options.structured_outputs import StructuredOutputsParams
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary

    vocabulary = constraint_vocabulary(tokenizer, tokenizer.vocab_size)
    matchers, compiler = Matchers(vocabulary), GrammarCompiler(vocabulary)
    inputs = inputs_of(tokenizer, compiler)
    engine, spent = fake_engine(tokenizer, num_rows, matchers)
    schemas, sequences = iter(schema_set().values()), []
    while len(sequences) < num_rows:
        # Rows must not end: the schema is that of an item of a long list.
        schema = next(schemas)
        inner = {key: value for key, value in schema.items() if key not in ("$defs", "$schema", "definitions")}
        endless = ENDLESS | {"items": inner, "$defs": schema.get("$defs", {})}
        params = SamplingParams(max_tokens=400, structured_outputs=StructuredOutputsParams(json=endless))
        try:
            request = inputs.make([1, 2, 3], params)
        except RequestError:
            continue
        first = inputs.arrive([request])
        sequences += engine.add(next(inputs.numbered([request], first)))
    while any(sequence.num_tokens <= 3 + NUM_WARM for sequence in sequences):
        engine.step()
    took_ms, masks_ms, before = list[float](), list[float](), sum(sequence.num_tokens for sequence in sequences)
    num_drawn, for_masks = 0, [0.0]
    matchers.advance = _timed(matchers.advance, for_masks)
    for _ in range(NUM_STEPS):
        spent[0], for_masks[0], started = 0.0, 0.0, time.perf_counter()
        deltas = engine.step()
        took_ms.append(1e3 * (time.perf_counter() - started - spent[0]))
        masks_ms.append(1e3 * for_masks[0])
        num_drawn += len({sequence.sequence_id for sequence in deltas.sequences})
    if any(sequence.is_finished for sequence in sequences):
        raise RuntimeError("a row ended during the measurement")
    num_new = sum(sequence.num_tokens for sequence in sequences) - before
    matchers.close()
    compiler.close()
    return took_ms, masks_ms, 100 * (num_new - num_drawn) / num_new


def inputs_of(tokenizer, compiler):
    """An `InputProcessor` whose forms are checked by `compiler`."""
    from jaxserve.engine.inputs.input_processor import InputProcessor

    return InputProcessor(
        tokenizer=tokenizer,
        eos_ids=tokenizer.eos_ids,
        vocab_size=tokenizer.vocab_size,
        max_model_len=MAX_MODEL_LEN,
        max_logprobs=5,
        max_edits=300,
        seed=0,
        check_grammar=compiler.check,
    )


def fake_engine(tokenizer, num_rows: int, matchers, ends: str = ""):
    """An engine, and the seconds that its runner has taken, in a list. ends: characters that are drawn as often as all
    others together, and the end of the text."""
    from jaxserve.core.buckets import make_buckets
    from jaxserve.core.kv_groups import KVGroups
    from jaxserve.engine.loop.engine import Engine
    from jaxserve.runner.fake.fake_runner import FakeRunner
    from jaxserve.scheduler.scheduler import Scheduler

    groups, num_pages = KVGroups((None,), PAGE), num_rows * (MAX_MODEL_LEN // PAGE) + 1
    budget = max(512, 2 * num_rows)
    scheduler = Scheduler(
        groups,
        make_buckets(num_rows, budget, MAX_MODEL_LEN // PAGE),
        num_pages=num_pages,
        max_num_seqs=num_rows,
        max_num_batched_tokens=budget,
        max_model_len=MAX_MODEL_LEN,
        vocab_size=tokenizer.vocab_size,
        matchers=matchers,
    )
    ids = {data: i for i, data in enumerate(tokenizer.token_bytes) if len(data) == 1}
    likely = [ids[c.encode()] for c in COMMON if c.encode() in ids]
    if ends:
        final = [*(ids[c.encode()] for c in ends), tokenizer.eos_ids[0]]
        likely = [token for i, common in enumerate(likely) for token in (common, final[i % len(final)])]
    model = Writer(tokenizer.vocab_size, likely=tuple(likely))
    runner = FakeRunner(
        model, groups, num_slots=num_rows, num_pages=num_pages, max_model_len=MAX_MODEL_LEN, max_logprobs=5
    )
    spent = [0.0]
    for name in ("submit", "draw", "collect"):
        setattr(runner, name, _timed(getattr(runner, name), spent))
    return Engine(scheduler, runner), spent


def _timed(function: Callable, spent: list[float]) -> Callable:
    def call(*args):
        started = time.perf_counter()
        try:
            return function(*args)
        finally:
            spent[0] += time.perf_counter() - started

    return call
