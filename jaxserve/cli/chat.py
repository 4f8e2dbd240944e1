"""Wiring: `jaxserve chat MODEL`: a chat with a model in the terminal, or answers to lines from a pipe."""

import argparse
import json
import sys
from typing import Any, cast

from jaxserve.cli.args.arg_types import MODEL_HELP
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.cli.args.lora_flag import add_lora_flag, lora_request, with_lora
from jaxserve.cli.args.sampling_flags import add_chat_flags, sampling_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.cli.chat_session.conversation import NOT_IN_CHAT, Conversation
from jaxserve.cli.chat_session.terminal import answer_lines, edit_lines, talk
from jaxserve.core.errors import RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.sampling_params import SamplingParams


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    options, variables = sampling_options(args), _variables(args.chat_template_kwargs)
    SamplingParams(**options)  # reports mistakes before the model is loaded
    config = EngineConfig.create(args.model, **with_lora(engine_options(args), args.lora))
    adapter = lora_request(args.lora)

    from jaxserve.engine.llm import LLM

    is_terminal = sys.stdin.isatty()
    llm = LLM.from_config(config, show_progress=is_terminal)
    max_model_len = llm.parts.sizes.max_model_len
    if adapter is not None:
        llm.load_adapter(adapter)  # reports files that cannot be used before the first question
    conversation = Conversation(
        llm, max_model_len, system=args.system, options=options, variables=variables, lora_request=adapter
    )
    if not is_terminal:
        return answer_lines(conversation, sys.stdin)
    edit_lines()
    print(f"{args.model}: /help lists the commands, Ctrl-D exits.")
    talk(conversation)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve chat",
        description="Chat with a model: jaxserve chat smollm2-135m-instruct. From a pipe, each line is a question.",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("--system", help="system message")
    add_lora_flag(parser)
    parser.add_argument(
        "--chat-template-kwargs",
        metavar="JSON",
        help="variables of the chat template, such as '{\"enable_thinking\": false}'",
    )
    add_chat_flags(parser, skip=NOT_IN_CHAT)
    add_engine_flags(parser, seed_help="seed of answers without --seed", defaults={"max_num_seqs": 1})
    return parser


def _variables(text: str | None) -> dict[str, Any]:
    try:
        found: Any = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise RequestError(f"--chat-template-kwargs is not JSON: {error}", "chat_template_kwargs") from None
    if not isinstance(found, dict):
        raise RequestError("--chat-template-kwargs must be a JSON object", "chat_template_kwargs")
    return cast(dict[str, Any], found)
