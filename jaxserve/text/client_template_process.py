"""Host: the program of the process that renders one client's template: JSON in, JSON out, within limits.

It imports jinja2 and what the sandbox needs, so that it starts fast; `client_template` starts it and may kill it.
"""

import json
import os
import resource
import sys
from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.text.chat_template import ChatTemplate

OUT_OF_MEMORY = 3  # exit code: there may be no memory left to say it in words


def main(memory_bytes: int, cpu_s: int) -> None:
    """Answer what stdin asks, {source, special_tokens, messages, options}, by {text} or {error, param}."""
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu_s)
    _limit(resource.RLIMIT_CORE, 0)
    try:
        answer = json.dumps(_answer(), ensure_ascii=False).encode("utf-8", "surrogatepass")
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    os._exit(0)  # at once: there is nothing to tidy up


def _answer() -> dict[str, Any]:
    try:
        asked = json.load(sys.stdin.buffer)
        template = ChatTemplate(asked["source"], asked["special_tokens"])
        return {"text": template.render(asked["messages"], **asked["options"])}
    except RequestError as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from None
        return {"error": str(error), "param": error.param}
    except (TypeError, RecursionError) as error:  # what is nested too deeply, or names that are no options
        return {"error": f"the chat template cannot be rendered: {error}"[:500], "param": "messages"}


def _limit(kind: int, value: int) -> None:
    """Set it for good, or keep what is stricter."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
