"""Wiring: `Grammars`: the grammar processes of an engine, which start with the first request that needs them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from threading import Lock

import numpy as np

from jaxserve.constrained.grammar_compiler import GrammarCompiler
from jaxserve.constrained.grammar_vocabulary import GrammarVocabulary
from jaxserve.constrained.matchers import Advance, Matchers
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
from jaxserve.text.tokenizer import Tokenizer


class Grammars:
    """`check` compiles a constraint for admission, in any thread; the other methods are `GrammarMatchers`, for the
    thread that steps the engine."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int):
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._making = Lock()
        self._made: GrammarCompiler | None = None

    def check(self, params: StructuredOutputsParams) -> None:
        """Raises `RequestError` where text of this form cannot be generated; blocks while its grammar is compiled."""
        self._compiler.check(params)

    def start(
        self, sequence_id: int, params: StructuredOutputsParams, eos_ids: tuple[int, ...], *, forces: bool
    ) -> None:
        self._matchers.start(sequence_id, params, eos_ids, forces=forces)

    def is_ready(self, sequence_id: int) -> bool:
        return self._matchers.is_ready(sequence_id)

    def advance(self, tokens: Mapping[int, Sequence[int] | None]) -> Mapping[int, Advance]:
        return self._matchers.advance(tokens)

    def along(self, drafts: Mapping[int, Sequence[int]]) -> Mapping[int, tuple[int, list[np.ndarray]]]:
        return self._matchers.along(drafts)

    def drop(self, sequence_id: int) -> None:
        self._matchers.drop(sequence_id)

    @property
    def _compiler(self) -> GrammarCompiler:
        with self._making:
            if self._made is None:
                self._made = GrammarCompiler(self._vocabulary)
            return self._made

    @cached_property
    def _matchers(self) -> Matchers:
        with self._making:
            return Matchers(self._vocabulary)

    @cached_property
    def _vocabulary(self) -> GrammarVocabulary:
        """Takes a second for 262,144 tokens: made by the first check, not by the engine's thread."""
        return constraint_vocabulary(self._tokenizer, self._vocab_size)
