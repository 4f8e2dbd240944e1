"""OpenAI's client, unchanged, with a served model: pydantic models, streams, vLLM's fields, refusals."""

import json
import os
import signal
import threading
from typing import Literal

from pydantic import BaseModel, Field

from scripts.proofs.grammars.killed_process import grammar_processes
from scripts.proofs.helpers.laws import Law

MODEL = "smollm2-135m-instruct"
OPTIONS = ("--max-model-len", "512", "--max-num-seqs", "8")
NUM_ASKED = 12


class Step(BaseModel):
    explanation: str = Field(max_length=30)
    output: int = Field(ge=-1000, le=1000)


class Answer(BaseModel):
    color: Literal["red", "green", "blue"]
    steps: list[Step] = Field(max_length=2)
    is_sure: bool


def openai_client() -> list[Law]:
    from openai import BadRequestError, OpenAI

    from tests.support.processes.server_process import SERVE, ServerProcess

    with ServerProcess(MODEL, *OPTIONS, command=SERVE) as server:
        server.until("ready after", 600)
        client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        messages = [{"role": "user", "content": "Solve 8x + 7 = -23. Answer in JSON."}]
        asked = {"model": MODEL, "messages": messages, "max_tokens": 256}
        parsed = sum(
            isinstance(
                client.chat.completions.parse(**asked, response_format=Answer, seed=i).choices[0].message.parsed, Answer
            )
            for i in range(NUM_ASKED)
        )
        with client.chat.completions.stream(**asked, response_format=Answer, seed=1) as stream:
            streamed = stream.get_final_completion().choices[0].message.parsed
        whole = client.chat.completions.parse(**asked, response_format=Answer, seed=1).choices[0].message.parsed
        chosen = client.completions.create(
            model=MODEL, prompt="Is the sky blue?", extra_body={"structured_outputs": {"choice": ["yes", "no"]}}
        )
        loaded = client.chat.completions.create(**asked | {"max_tokens": 400}, response_format={"type": "json_object"})
        is_object = loaded.choices[0].finish_reason == "length" or isinstance(
            json.loads(loaded.choices[0].message.content or ""), dict
        )
        refused = ""
        bad = {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"type": "object", "not": {"required": ["b"]}}},
        }
        try:
            client.chat.completions.create(**asked, response_format=bad)
        except BadRequestError as error:
            refused = f"{error.param}: {error.body}"
        lost = _lost_when_killed(client, asked, server.process.pid)
        server.send(signal.SIGTERM)
        code = server.exit_code()
    return [
        (f"answers that parse as the pydantic model, of {NUM_ASKED}", parsed, NUM_ASKED, None),
        ("the streamed answer equals the whole one", streamed == whole and isinstance(whole, Answer), 1, None),
        ("the choice is one of those given", chosen.choices[0].text in ("yes", "no"), 1, None),
        ("json_object is an object", is_object, 1, None),
        ("a schema that cannot be honored is a 400 that names response_format", "response_format" in refused, 1, None),
        ("requests lost when the grammar processes were killed, of 8", lost, None, 0),
        ("exit code of the server", code, 0, 0),
    ]


def _lost_when_killed(client, asked: dict, pid: int) -> int:
    """Four requests with a form and four without run while all grammar processes are killed."""
    fates = []

    def ask(i: int) -> None:
        others = {"response_format": {"type": "json_object"}} if i % 2 else {}
        text = client.chat.completions.create(**asked, **others, seed=i, stream=True)
        reasons = [piece.choices[0].finish_reason for piece in text]
        fates.append(reasons[-1] in ("stop", "length"))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    threading.Event().wait(1.0)
    for child in grammar_processes(pid):
        os.kill(child, signal.SIGKILL)
    for thread in threads:
        thread.join()
    return 8 - sum(fates)
