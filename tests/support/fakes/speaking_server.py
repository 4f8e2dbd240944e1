"""A server whose model says one of some texts, whatever grammar it should keep to."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxserve.constrained.matchers import Advance
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from tests.support.fakes.fake_llm import PLAIN_TEMPLATE, Speaker, fake_llm
from tests.support.serving.http_server import Running, running

VOCAB_SIZE = 264


class OpenMatchers:
    """`GrammarMatchers` that allow all tokens. started: the forms of all sequences that had one."""

    def __init__(self) -> None:
        self.started: list[StructuredOutputsParams] = []

    def start(self, sequence_id, params, eos_ids, *, forces) -> None:
        if sequence_id >= 0:  # the others are trials, which compile a grammar before a sequence needs it
            self.started.append(params)

    def is_ready(self, sequence_id) -> bool:
        return True

    def advance(self, tokens):
        mask = np.full(-(-VOCAB_SIZE // 32), 2**32 - 1, np.uint32)
        return {i: Advance((), mask, may_end=False, error=None) for i in tokens}

    def drop(self, sequence_id) -> None:
        pass


@dataclass(frozen=True)
class Speaking:
    """constraints: of all requests that had one, in their order."""

    server: Running
    constraints: list[StructuredOutputsParams]


@contextmanager
def speaking(*said: str, template: str = PLAIN_TEMPLATE, **options: Any) -> Iterator[Speaking]:
    """said: texts; the seed of a request is the number of its own. options: of `ServerConfig`."""
    matchers = OpenMatchers()
    llm = fake_llm(
        Speaker(VOCAB_SIZE, said=said),
        template=template,
        max_model_len=320,
        check_grammar=lambda _: None,
        matchers=matchers,
    )
    with running(llm, **options) as server:
        yield Speaking(server, matchers.started)
