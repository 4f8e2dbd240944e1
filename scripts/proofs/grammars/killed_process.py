"""Killing the process of the grammars loses no request: constrained texts go on, the others do not notice."""

import os
import signal
from pathlib import Path

from scripts.proofs.grammars.equal_texts import COMMON, FORMS, MAX_PROMPT_LEN, MAX_TOKENS, MODEL
from scripts.proofs.helpers.laws import Law
from scripts.proofs.parity import read_goldens

NUM_ROWS, KILLED_AT = 16, (6, 14)  # steps


def killed_process() -> list[Law]:
    from jaxserve import LLM, SamplingParams

    llm, killed = LLM(MODEL, **COMMON), list[int]()
    prompts = [prompt[:MAX_PROMPT_LEN] for prompt in read_goldens(MODEL)[0][:NUM_ROWS]]
    params = [
        SamplingParams(temperature=1.0, seed=i, max_tokens=MAX_TOKENS,
                       structured_outputs=FORMS[i // 2 % len(FORMS)] if i % 2 else None)
        for i in range(NUM_ROWS)
    ]  # fmt: skip

    def texts() -> list[tuple]:
        found = llm.generate(prompts, params, use_tqdm=False)
        return [(output.outputs[0].text, output.outputs[0].finish_reason) for output in found]

    expected, num_steps = texts(), [0]

    def kill(_) -> None:
        num_steps[0] += 1
        if num_steps[0] in KILLED_AT:
            for child in grammar_processes():
                os.kill(child, signal.SIGKILL)
                killed.append(child)

    llm.parts.engine.observer = kill
    found = texts()
    llm.parts.engine.observer = None
    equal = [a == b for a, b in zip(expected, found, strict=True)]
    return [
        ("grammar processes killed in a run", len(killed), 2, None),
        (
            f"texts without a form equal to those of a quiet run, of {NUM_ROWS // 2}",
            sum(equal[::2]),
            NUM_ROWS // 2,
            None,
        ),
        (f"texts with a form equal, of {NUM_ROWS // 2}", sum(equal[1::2]), NUM_ROWS // 2, None),
        ("texts that failed", sum(reason == "error" for _, reason in found), None, 0),
    ]


def grammar_processes(parent: int | None = None) -> list[int]:
    """Children of a process that are grammar processes."""
    tasks = Path(f"/proc/{parent or os.getpid()}/task").glob("*/children")
    children = {int(child) for task in tasks for child in task.read_text().split()}
    return [child for child in children if b"grammar_process" in Path(f"/proc/{child}/cmdline").read_bytes()]
