"""What the scripts of outside clients share: direct requests, checks, and the report to the proof.

The scripts run in the clients' own environments, so this module needs the standard library only.
"""

import json
import math
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

MODEL = "smollm2-135m-instruct"
MAX_SHOWN = 300  # characters of a value in a failure
NUM_AT_ONCE = 16  # direct requests: the server's steps then serve several, and it stays as fair as with users
Part = Callable[["Checks"], None]


@dataclass
class Checks:
    """url: the address that the client is given. direct_url: the server's own, for the requests to compare with.
    is_brief: for a control, which needs few checks."""

    url: str
    direct_url: str
    key: str
    is_brief: bool
    num_checks: Counter[str] = field(default_factory=Counter)
    direct_requests: list[tuple[str, str]] = field(default_factory=list)  # appended to by several threads
    failures: list[str] = field(default_factory=list)
    part: str = ""

    def equal(self, what: str, found: Any, wanted: Any) -> None:
        self.holds(what, found == wanted, f"{_shown(found)} instead of {_shown(wanted)}")

    def holds(self, what: str, is_true: bool, found: str = "") -> None:
        self.num_checks[self.part] += 1
        if not is_true:
            self.failures.append(f"{self.part}: {what}: {found}")

    def raises(self, what: str, kind: type[Exception], words: str, call: Callable[[], Any]) -> None:
        """`call` raises an error of this very kind whose message contains `words`."""
        try:
            found: Any = call()
        except Exception as error:
            self.holds(what, type(error) is kind and words in str(error), f"{type(error).__name__}: {error}")
        else:
            self.holds(what, False, f"no error but {_shown(found)}")

    def direct(self, path: str, **body: Any) -> Any:
        """The JSON that the server answers without any client library: to a POST of these fields, else to a GET."""
        self.direct_requests.append((path, "POST" if body else "GET"))
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = Request(self.direct_url + path, json.dumps(body).encode() if body else None, headers)
        with urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def direct_chats(self, chats: Sequence[list[dict[str, Any]]], **fields: Any) -> list[str]:
        """The greedy answer to each chat, asked for by a request of its own."""

        def one(messages: list[dict[str, Any]]) -> str:
            answer = self.direct("/v1/chat/completions", messages=messages, temperature=0, **fields)
            return answer["choices"][0]["message"]["content"]

        with ThreadPoolExecutor(NUM_AT_ONCE) as threads:
            return list(threads.map(one, chats))

    def direct_texts(self, prompts: Sequence[str], **fields: Any) -> list[str]:
        """The greedy continuation of each prompt, asked for by a request of its own."""

        def one(prompt: str) -> str:
            return self.direct("/v1/completions", prompt=prompt, temperature=0, **fields)["choices"][0]["text"]

        with ThreadPoolExecutor(NUM_AT_ONCE) as threads:
            return list(threads.map(one, prompts))

    def direct_vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """The embedding of each text, asked for by a request of its own."""

        def one(text: str) -> list[float]:
            return self.direct("/v1/embeddings", input=text)["data"][0]["embedding"]

        with ThreadPoolExecutor(NUM_AT_ONCE) as threads:
            return list(threads.map(one, texts))


def largest_difference(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> float:
    """Between the components of vectors; infinite for other numbers of them."""
    if [len(row) for row in found] != [len(row) for row in wanted]:
        return math.inf
    return max(abs(a - b) for rows in zip(found, wanted, strict=True) for a, b in zip(*rows, strict=True))


def main(version: str, *parts: Part) -> None:
    """Runs a client's parts and prints their report as the last line.

    The arguments of the process are the two addresses, the key, and `whole` or `brief`: the first part only. An
    exception in a part is a failure of that part.
    """
    url, direct_url, key, extent = sys.argv[1:]
    checks = Checks(url, direct_url, key, extent == "brief")
    for part in parts[:1] if checks.is_brief else parts:
        checks.part = _title(part)
        checks.num_checks[checks.part] += 0
        try:
            part(checks)
        except Exception as error:
            traceback.print_exc()
            checks.failures.append(f"{checks.part}: {type(error).__name__}: {str(error)[:MAX_SHOWN]}")
    report = {
        "version": version,
        "num_checks": checks.num_checks,
        "direct": [[path, method, num] for (path, method), num in Counter(checks.direct_requests).items()],
        "failures": checks.failures,
    }
    print(json.dumps(report))


def _title(part: Part) -> str:
    assert part.__doc__ is not None
    return part.__doc__.partition("\n")[0].rstrip(".")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} … ({len(text)} characters)"
