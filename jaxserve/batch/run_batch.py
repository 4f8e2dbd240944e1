"""Host: `run_batch`: computes all lines of a batch file, many at once; writes each result when it is complete."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from jaxserve.batch.batch_lines import parse_line, read_lines
from jaxserve.batch.line_answer import answer_line
from jaxserve.batch.results_journal import ResultsJournal
from jaxserve.core.compile_times import COMPILE_TIMES
from jaxserve.server.server_state import ServerState

Progress = Callable[[int, int], None]  # lines and tokens since the last call


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """num_before: lines completed by earlier runs. num_lines: those and the ones of this run. work_s: without the time
    in which steps were compiled."""

    num_lines: int
    num_before: int
    num_tokens: int
    work_s: float


async def run_batch(
    state: ServerState, source: Path, journal: ResultsJournal, *, max_inflight: int, seed: int, progress: Progress
) -> BatchSummary:
    """Compute every line that has no result yet. At most `max_inflight` lines are in progress or in memory.

    journal: of `source`. Raises `EngineDeadError` if the engine dies; a later run resumes from the written results.
    """
    started_s, num_before, num_tokens = COMPILE_TIMES.work_s(), len(journal.done), 0
    lines = (parse_line(number, raw) for number, raw in read_lines(source) if number not in journal.done)
    done: set[asyncio.Task[tuple[dict[str, Any], int]]] = set()
    running: set[asyncio.Task[tuple[dict[str, Any], int]]] = set()
    num_done = 0
    try:
        while True:
            for line in islice(lines, max_inflight - len(running)):
                running.add(asyncio.create_task(answer_line(state, line, seed)))
            if not running:
                break
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            results = [task.result() for task in done]
            # Lines that end during a write are written together by the next one.
            await asyncio.to_thread(journal.append, [result for result, _ in results])
            num_done += len(results)
            num_tokens += (tokens := sum(count for _, count in results))
            progress(len(results), tokens)
    finally:
        for task in running:
            task.cancel()
        # After the engine's death each of them raises; asyncio would log every exception that is not retrieved.
        await asyncio.gather(*done, *running, return_exceptions=True)
    return BatchSummary(num_before + num_done, num_before, num_tokens, COMPILE_TIMES.work_s() - started_s)
