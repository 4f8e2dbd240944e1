"""Host: the program of a grammar process: compiles grammars, advances matchers, writes masks into shared memory.

`GrammarProcess` starts it and may kill it at any moment; it ends by itself when the other end of its connection is
closed. It loads neither jax nor numpy. A thread reads messages, so none waits in a full socket; another compiles
grammars, which llguidance does without Python's lock, so sequences that run do not wait for it.
"""

import os
import resource
import socket
import traceback
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from llguidance import LLMatcher

from jaxserve.constrained.canonical_tokenizer import CanonicalTokenizer
from jaxserve.constrained.compile_grammar import compile_grammar, read_params
from jaxserve.constrained.grammar_vocabulary import read_vocabulary
from jaxserve.constrained.json_schema_rules import SchemaError
from jaxserve.constrained.mask_memory import MaskMemory
from jaxserve.constrained.matcher_table import MatcherTable, SequenceMatcher
from jaxserve.constrained.message_channel import OUT_OF_MEMORY, MessageChannel
from jaxserve.constrained.token_slices import sliced

MAX_GRAMMARS = 128  # compiled ones that are kept; each takes tens of kB, and more as its lexer meets new texts
Message = dict[str, Any]


def main(connection: int, vocabulary: int, masks: int, memory_bytes: int, num_threads: int) -> None:
    """The first three are inherited descriptors. memory_bytes: what it may allocate beyond the vocabulary."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = MessageChannel(socket.socket(fileno=connection))
    messages: SimpleQueue[Message] = SimpleQueue()
    Thread(target=_read, args=(channel, messages), daemon=True).start()
    with _end_on_errors():
        server = Server(channel, vocabulary, masks, num_threads)
        _limit_memory(memory_bytes)
        server.run(messages)


class Server:
    """Answers messages in their order, but for `start`, which a thread does."""

    def __init__(self, channel: MessageChannel, vocabulary: int, masks: int, num_threads: int):
        record = read_vocabulary(vocabulary)
        tokens = CanonicalTokenizer(record.token_bytes, record.vocab_size, record.tokenizer_json)
        self._tokenizer = sliced(tokens)
        tokens.fallback = self._tokenizer.greedy_tokenize
        self._tokens = tokens.tokens
        self._channel, self._sending = channel, Lock()
        memory = MaskMemory(masks, record.num_row_words)
        self._table = MatcherTable(memory, record.vocab_size, num_threads)
        self._grammars: OrderedDict[str, LLMatcher] = OrderedDict()
        self._wanted: set[int] = set()
        self._starts: SimpleQueue[Message] = SimpleQueue()
        Thread(target=self._start_each, daemon=True).start()
        self._send({"ready": True})

    def run(self, messages: "SimpleQueue[Message]") -> None:
        while True:
            message = messages.get()
            answer = getattr(self, "_" + message["do"])(message)
            if answer is not None:
                self._send(answer)

    def _check(self, message: Message) -> Message:
        try:
            compile_grammar(self._tokenizer, read_params(message["key"]))
        except SchemaError as error:
            return {"error": str(error)}
        return {"error": None}

    def _start(self, message: Message) -> None:
        self._wanted.add(message["id"])
        self._starts.put(message)

    def _drop(self, message: Message) -> None:
        self._wanted.discard(message["id"])
        self._table.matchers.pop(message["id"], None)

    def _advance(self, message: Message) -> Message:
        self._table.masks.grow(message["num_rows"])
        return {"rows": self._table.advance(message["tokens"])}

    def _along(self, message: Message) -> Message:
        self._table.masks.grow(message["num_rows"])
        return {"num_legal": self._table.along(message["drafts"])}

    def _start_each(self) -> None:
        with _end_on_errors():
            while True:
                message = self._starts.get()
                try:
                    matcher = self._new_matcher(message["key"], message["is_alone"])
                    answer = {"started": message["id"], "error": self._put(message, matcher)}
                except SchemaError as error:
                    answer = {"started": message["id"], "error": str(error)}
                self._send(answer)

    def _put(self, message: Message, matcher: LLMatcher) -> str | None:
        """Adds a sequence with the tokens that it has; returns what is wrong with them."""
        ends = frozenset[int](message["eos_ids"])
        item = SequenceMatcher(matcher, ends, any(self._tokens[i] for i in ends), message["forces"])
        item.consume(message["tokens"], self._table.end_id)
        self._table.matchers[message["id"]] = item
        if message["id"] not in self._wanted:  # dropped meanwhile
            self._drop(message)
        return item.error

    def _new_matcher(self, key: str, is_alone: bool) -> LLMatcher:
        """A matcher at the begin of a grammar's text. It shares the states that the lexer has found with others, unless
        it is to be alone, because these have reached a limit."""
        found = self._grammars.pop(key, None)
        if is_alone:
            return compile_grammar(self._tokenizer, read_params(key))
        self._grammars[key] = found = found or compile_grammar(self._tokenizer, read_params(key))
        if len(self._grammars) > MAX_GRAMMARS:
            self._grammars.popitem(last=False)
        return found.deep_copy()

    def _send(self, message: Message) -> None:
        with self._sending:
            self._channel.send(message)


@contextmanager
def _end_on_errors() -> Generator[None]:
    """The end of one thread ends the process: the others would wait for it."""
    try:
        yield
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except EOFError:  # the parent has ended, or has no more use for this process
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _read(channel: MessageChannel, messages: "SimpleQueue[Message]") -> None:
    with _end_on_errors():
        while True:
            messages.put(channel.receive())


def _limit_memory(num_bytes: int) -> None:
    """Allows this many bytes of address space beyond what is used now."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + num_bytes if hard == resource.RLIM_INFINITY else min(used + num_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
