"""A model that says one text and ends, and a server of it that says any text to any request."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.scheduler.constraints import Constraints
from tests.support.fakes.fake_llm import PLAIN_TEMPLATE, fake_llm
from tests.support.serving.http_server import Running, running

EOS_ID, VOCAB_SIZE = 261, 264


@dataclass(slots=True)
class Script:
    """What is said, from which position on: that of the first token after the prompt."""

    data: bytes = b""
    start: int = 0


@dataclass(frozen=True, slots=True)
class Speaker(FakeModel):
    script: Script = field(default_factory=Script)

    def draw(self, prefix, seed, index, position, is_allowed):
        i = position - self.script.start
        return self.script.data[i] if 0 <= i < len(self.script.data) else EOS_ID


class OpenMatchers:
    """`GrammarMatchers` that allow all tokens: what the model says is up to the script. started: the constraints."""

    def __init__(self) -> None:
        self.started: list[StructuredOutputsParams] = []

    def start(self, sequence_id, params, eos_ids, *, forces) -> None:
        self.started.append(params)

    def advance(self, tokens):
        mask = np.full(-(-VOCAB_SIZE // 32), 2**32 - 1, np.uint32)
        return {i: SimpleNamespace(forced=(), mask=mask, is_complete=False, error=None) for i in tokens}

    def drop(self, sequence_id) -> None:
        pass


@dataclass(frozen=True)
class Stage:
    """A server whose model says what a test wants. constraints: of all its requests that had one."""

    server: Running
    script: Script
    constraints: list[StructuredOutputsParams]

    def will_say(self, text: str, path: str, body: dict[str, Any]) -> None:
        """The answer to a request. It is sent once before, for the length of its prompt."""
        usage = self.server.post(path, {**body, "stream": False}).json()["usage"]
        self.script.start = usage.get("input_tokens", usage.get("prompt_tokens"))
        self.script.data = text.encode()


@contextmanager
def stage(template: str = PLAIN_TEMPLATE, **options: Any) -> Iterator[Stage]:
    """template: of chats. options: of `ServerConfig`."""
    script, matchers = Script(), OpenMatchers()
    llm = fake_llm(Speaker(VOCAB_SIZE, script=script), template=template, check_grammar=lambda _: None)
    llm.parts.engine.scheduler.state.constraints = Constraints(matchers)
    with running(llm, **options) as server:
        yield Stage(server, script, matchers.started)
