"""Host: the `jaxserve` command: one file per verb, imported only when it is used, so that help is fast."""

import importlib
import os
import platform
import signal
import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Any

import jaxserve
from checkpoints.errors import CheckpointError, SourceError
from jaxserve.cli.args.verb_parser import hint
from jaxserve.core.errors import ConfigError, RequestError

VERBS = {
    "generate": "complete prompts and print the text",
    "serve": "serve a model over HTTP to OpenAI's clients",
    "batch": "answer a file of requests in OpenAI's batch format",
    "chat": "chat with a model in the terminal",
    "inspect": "describe a model: sizes, memory, tokenizer, fitting devices",
    "convert": "write a model as a safetensors or an Orbax folder",
    "quantize": "write a model with weights of 4 or 8 bits",
    "merge-lora": "write a model with a LoRA adapter merged into its weights",
    "compile": "compile all programs of an engine, so that later processes start in seconds",
    "train-draft": "find what a model drafts with: trained heads, or layers to skip",
    "bench": "measure the offline engine, ways to draft, the prefix cache, or a server under load",
    "plan": "compile an engine for present or absent devices: memory, programs, lower bounds of step times",
    "profile": "trace some steps and show where their time goes",
}


def main(argv: list[str] | None = None) -> int:
    """Runs a verb. Exit code 2 and one sentence for mistakes that the user can correct; 141 where the pipe
    that it writes to is closed."""
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # such as that of `head`, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        return 128 + int(signal.SIGPIPE)


def _run(argv: list[str]) -> int:
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"jaxserve {jaxserve.__version__}, jax {version('jax')}, Python {platform.python_version()}")
        return 0
    if name not in VERBS:
        kind = "option" if name.startswith("-") else "verb"
        print(
            f"jaxserve: unknown {kind} {name}{hint(name, VERBS)} (`jaxserve --help` lists all verbs)", file=sys.stderr
        )
        return 2
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, TextIOWrapper):  # an answer may have what the terminal cannot show
            stream.reconfigure(errors="replace")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # what is no text is refused where it is read
    verb = verb_module(name)
    try:
        return verb.run(argv[1:])
    except BrokenPipeError:
        raise
    except (RequestError, ConfigError, CheckpointError, SourceError, OSError) as error:
        # Invalid input and full disks; an internal fault shows its traceback.
        print(f"jaxserve {name}: {_reason(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def verb_module(name: str) -> Any:
    """The module of a verb."""
    return importlib.import_module(f"jaxserve.cli.{name.replace('-', '_')}")


def _reason(error: Exception) -> str:
    """One sentence; that of the operating system begins with the file instead of a number."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _overview() -> str:
    verbs = (f"  {name:<13}{text}" for name, text in VERBS.items())
    return "\n".join(
        (
            "usage: jaxserve VERB [OPTIONS]",
            "",
            "LLM inference in JAX on TPU, GPU and CPU.",
            "",
            "verbs:",
            *verbs,
            "",
            "jaxserve VERB --help lists the options of a verb; jaxserve --version names the versions.",
            "To begin: jaxserve chat smollm2-135m-instruct",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
