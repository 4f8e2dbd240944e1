"""A program: `jaxserve batch` over a fake model, which hangs once the output has some lines.

python -m tests.support.processes.fake_batch LINES IN OUT [options of batch]
"""

import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from jaxserve.cli.main import main
from jaxserve.engine.llm import LLM
from tests.support.fakes.fake_llm import fake_llm
from tests.support.processes.batch_kill import num_whole


def _load(output: Path, most: int) -> LLM:
    llm = fake_llm()
    collect = llm.parts.runner.collect

    def until_enough(ticket: Any) -> Any:
        if num_whole(output) >= most:
            time.sleep(600)
        return collect(ticket)

    llm.parts.runner.collect = until_enough
    return llm


if __name__ == "__main__":
    most, source, output, *options = sys.argv[1:]
    patch.object(LLM, "from_config", lambda *_, **__: _load(Path(output), int(most))).start()
    sys.exit(main(["batch", source, output, *options]))
