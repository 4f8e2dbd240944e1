"""A program: `jaxserve serve` over a fake model with a fault.

    python -m tests.support.processes.fake_serve FAULT [options of serve]

slow: each step takes 20 ms. crash: the 20th step fails like a device that is out of memory. no memory: the model does
not fit. hang: the fourth step does not end. long load: loading does not end. deaf: the listener fails.
"""

import sys
import time
from typing import Any
from unittest.mock import patch

from jaxserve.cli.main import main
from jaxserve.engine.llm import LLM
from jaxserve.server.http.listener import Listener
from tests.support.fakes.fake_llm import fake_llm

STEP_S = 0.02
FAILING_STEP = 20
FINISHED_STEPS = 3
REASON = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."


async def _break(*args: Any) -> bool:
    raise RuntimeError("the socket is gone")


def _load(fault: str) -> LLM:
    if fault == "long load":
        time.sleep(600)
    if fault == "no memory":
        raise RuntimeError(REASON)
    llm = fake_llm()
    collect, num_steps = llm.parts.runner.collect, 0

    def slow(ticket: Any) -> Any:
        nonlocal num_steps
        num_steps += 1
        time.sleep(600 if fault == "hang" and num_steps > FINISHED_STEPS else STEP_S)
        if fault == "crash" and num_steps >= FAILING_STEP:
            raise RuntimeError(REASON)
        return collect(ticket)

    llm.parts.runner.collect = slow
    return llm


if __name__ == "__main__":
    fault, *options = sys.argv[1:]
    if fault == "deaf":
        patch.object(Listener, "on_tick", _break).start()
    patch.object(LLM, "from_config", lambda *args, **kwargs: _load(fault)).start()
    sys.exit(main(["serve", "fake", "--no-warm-up", *options]))
