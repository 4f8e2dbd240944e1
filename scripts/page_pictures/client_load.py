"""`clients`: threads that keep a server busy with chat requests."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

RULES = (
    "You are the editor of a small encyclopedia for curious people. Write in plain English, in whole sentences, "
    "without lists and without headings. Explain every technical word when it comes up for the first time. Prefer "
    "examples that can be seen in a kitchen, in a street or on a walk. "
)
THINGS = (
    "rain, bread, tides, bicycles, glass, the printing press, owls, salt, clocks, maps, rust, volcanoes, bees, ink, "
    "bridges, the moon, tea, magnets, chess, soap, lighthouses, pencils, snow, paper, windmills, copper"
).split(", ")


class Clients:
    """Threads that each request one article after another; every fourth requests three samples per article."""

    def __init__(self, url: str):
        self._url, self._is_over = url, threading.Event()
        self._things = itertools.cycle(THINGS)
        self._threads: list[threading.Thread] = []

    def add(self, count: int) -> None:
        for k in range(count):
            self._threads.append(threading.Thread(target=self._ask, args=(3 if k % 4 == 0 else 1,)))
            self._threads[-1].start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, num_versions: int) -> None:
        with httpx2.Client(base_url=self._url, timeout=600) as client:
            while not self._is_over.is_set():
                thing = next(self._things)
                messages = [
                    {"role": "system", "content": RULES},
                    {"role": "user", "content": f"Write an article about {thing}: what it is and how it came to be."},
                ]
                body = {"messages": messages, "n": num_versions, "max_tokens": 60 + 20 * len(thing), "stream": True}
                with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                    answer.raise_for_status()
                    for _ in answer.iter_lines():
                        if self._is_over.is_set():
                            return


@contextmanager
def clients(url: str, count: int) -> Iterator[Clients]:
    """Runs `count` clients until the block ends."""
    made = Clients(url)
    made.add(count)
    try:
        yield made
    finally:
        made.end()
