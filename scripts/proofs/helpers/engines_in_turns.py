"""Two engines of one process that generate the same texts side by side, each in turn for half a second.

Of engines that generate one after the other the times differ by 5 to 11 % even where they are alike (SmolLM2 on two
virtual cores, texts of 7 s), because the machine's other users come and go within seconds; in turns by 3 %.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

TURN_S = 0.5

Texts = list[list[int]]


class Turns:
    """Whose turn it is of two; once one has ended, always the other's."""

    def __init__(self, first: int):
        self._changed, self._own, self._running = threading.Condition(), first, {0, 1}

    def wait_for(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._own == number)

    def end(self, number: int, *, is_last: bool = False) -> None:
        with self._changed:
            if is_last:
                self._running.discard(number)
            self._own = 1 - number if 1 - number in self._running else number
            self._changed.notify_all()


def rates_in_turns(engines, texts: Texts, params, first: int) -> list[float]:
    """Tokens/s of each of two engines, by the time of its own turns. first: the engine that begins."""
    turns = Turns(first)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(_rate, turns, number, llm, texts, params) for number, llm in enumerate(engines)]
        return [rate.result() for rate in running]


def _rate(turns: Turns, number: int, llm, texts: Texts, params) -> float:
    import jax

    engine, spent_s = llm.parts.engine, 0.0
    step = engine.step
    turns.wait_for(number)
    began_s = time.perf_counter()

    def step_in_turn():
        nonlocal began_s, spent_s
        if time.perf_counter() - began_s > TURN_S:
            jax.block_until_ready(llm.parts.runner._state)  # the step that runs ahead is part of this turn
            spent_s += time.perf_counter() - began_s
            turns.end(number)
            turns.wait_for(number)
            began_s = time.perf_counter()
        return step()

    try:
        with patch.object(engine, "step", step_in_turn):
            outputs = llm.generate(texts, params, use_tqdm=False)
        spent_s += time.perf_counter() - began_s
    finally:
        turns.end(number, is_last=True)
    return sum(len(output.outputs[0].token_ids) for output in outputs) / spent_s
