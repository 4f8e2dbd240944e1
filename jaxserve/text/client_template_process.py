"""Host: the child process that renders one client's template under limits: JSON in, JSON out.

`client_template` starts it and may kill it. It imports jinja2 and neither jax, numpy nor tokenizers, so
it starts fast and its memory is the template's.
"""

import json
import os
import resource
import sys
from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.text.chat_template import ChatTemplate

CLIENTS = "the request's chat template"
OUT_OF_MEMORY = 3  # exit code: there may be no memory left for a message


def main(memory_bytes: int, cpu_s: int) -> None:
    """Reads {source, special_tokens, messages, options} from stdin and writes {text} or {error, param} to stdout."""
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu_s)
    _limit(resource.RLIMIT_CORE, 0)
    try:
        answer = json.dumps(_render(), ensure_ascii=False).encode("utf-8", "surrogatepass")
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    os._exit(0)  # without cleaning up, which takes time


def _render() -> dict[str, Any]:
    try:
        job = json.load(sys.stdin.buffer)
        template = ChatTemplate(job["source"], job["special_tokens"], name=CLIENTS)
        return {"text": template.render(job["messages"], **job["options"])}
    except RequestError as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from None
        return {"error": str(error), "param": error.param}
    except (TypeError, RecursionError) as error:  # unknown options, or messages that are nested too deeply
        return {"error": f"{CLIENTS} cannot be rendered: {error}"[:500], "param": "messages"}


def _limit(kind: int, value: int) -> None:
    """Lowers a resource limit; a stricter one stays."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
