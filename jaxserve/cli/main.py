"""Host: the `jaxserve` command: one file per verb, imported only when it is used, so that help is fast."""

import argparse
import importlib
import sys

from checkpoints.errors import CheckpointError, SourceError
from jaxserve.core.errors import ConfigError, RequestError

VERBS = {
    "generate": "complete prompts and print the text",
    "serve": "serve a model over HTTP to OpenAI's clients",
    "batch": "answer a file of requests in OpenAI's batch format",
    "chat": "chat with a model in the terminal",
    "inspect": "describe a model: sizes, memory, tokenizer, fitting devices",
    "convert": "write a model as a safetensors or an Orbax folder",
    "compile": "compile all programs of an engine, so that later processes start in seconds",
    "bench": "measure throughput or latency of the offline engine, the prefix cache, or a server under load",
    "plan": "compile an engine for present or absent devices: memory, programs, lower bounds of step times",
    "profile": "trace some steps and show where their time goes",
}


def main(argv: list[str] | None = None) -> int:
    """Runs a verb. Exit code 2 and one sentence for mistakes that the user can correct."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="jaxserve", description="LLM inference in JAX on TPU, GPU and CPU.")
    parser.add_argument("verb", choices=VERBS, help="; ".join(f"{name}: {text}" for name, text in VERBS.items()))
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="options of the verb: jaxserve VERB --help")
    args = parser.parse_args(argv[:1] if argv else ["--help"])
    verb = importlib.import_module(f"jaxserve.cli.{args.verb}")
    try:
        return verb.run(argv[1:])
    except (RequestError, ConfigError, CheckpointError, SourceError, OSError) as error:
        # Invalid input and full disks; an internal fault shows its traceback.
        print(f"jaxserve {args.verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
