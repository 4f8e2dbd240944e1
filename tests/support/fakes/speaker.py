"""A model that says one text and ends, and a server of it that says any text to any request."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jaxserve.runner.fake.fake_model import FakeModel
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import Running, running

EOS_ID = 261


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


@dataclass(frozen=True)
class Stage:
    """A server whose model says what a test wants."""

    server: Running
    script: Script

    def will_say(self, text: str, path: str, body: dict[str, Any]) -> None:
        """The answer to a request. It is sent once before, for the length of its prompt."""
        usage = self.server.post(path, {**body, "stream": False}).json()["usage"]
        self.script.start = usage.get("input_tokens", usage.get("prompt_tokens"))
        self.script.data = text.encode()


@contextmanager
def stage(**options: Any) -> Iterator[Stage]:
    """options: of `ServerConfig`."""
    script = Script()
    with running(fake_llm(Speaker(264, script=script), check_grammar=lambda _: None), **options) as server:
        yield Stage(server, script)
