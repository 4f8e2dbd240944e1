"""Engines over the fake runner with llguidance's grammars: draws are random, so texts wander through their forms."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from jaxserve.constrained.grammar_compiler import GrammarCompiler
from jaxserve.constrained.matchers import Matchers
from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
from jaxserve.engine.llm import LLM
from tests.support.fakes.fake_llm import fake_llm


@contextmanager
def engines_with_grammars() -> Iterator[Any]:
    """Yields `fake_llm` for engines that have grammars; all share two grammar processes, so they run in turns."""
    whole = fake_llm()
    assert whole.parts.tokenizer is not None
    vocabulary = constraint_vocabulary(whole.parts.tokenizer, whole.parts.tokenizer.vocab_size)
    compiler, matchers = GrammarCompiler(vocabulary), Matchers(vocabulary)
    try:
        yield partial(fake_llm, check_grammar=compiler.check, matchers=matchers)
    finally:
        compiler.close()
        matchers.close()


def is_without_grammars(llm: LLM) -> bool:
    """Whether no sequence is followed any more."""
    constraints = llm.parts.engine.scheduler.state.constraints
    assert constraints is not None
    return not constraints._masks
