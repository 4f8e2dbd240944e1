"""Wiring: `jaxserve train-draft MODEL --out DIR`: finds what a model drafts with, on texts of its own: Medusa heads,
an EAGLE-3 draft, or layers that drafts skip."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxserve.cli.args.arg_types import MODEL_HELP, count, existing_file, number
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.models.config.medusa_heads import MAX_HEADS

if TYPE_CHECKING:
    from jaxserve.engine.llm import LLM

TRAINING = {"num_tokens": 200_000, "depth": 3, "texts_per_step": 2, "max_steps": None, "draft_vocab_size": None}
DEFAULTS: dict[str, dict[str, Any]] = {
    "medusa": TRAINING | {"learning_rate": 2e-3, "epochs": 2},
    "eagle3": TRAINING | {"learning_rate": 1e-3, "epochs": 1},
    "layer_skip": {"num_tokens": 2_000},
}
"""The options of each method."""
WEIGHTS = {"quantization": "dense"}
MIN_TEXT_LEN = 8
MAX_TEMPERATURE = 2


def run(argv: list[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    _check_options(parser, args)
    config = EngineConfig.create(args.model, **WEIGHTS | engine_options(args))

    from jaxserve.cli.train_draft_methods import METHODS, check_weights
    from jaxserve.core.progress_bars import CountBar
    from jaxserve.engine.llm import LLM
    from jaxserve.train_draft.own_texts import own_texts, prepare_folder

    prepare_folder(args.out)
    llm = LLM.from_config(config, show_progress=not args.quiet)
    check_weights(llm, args.method)
    prompts = None if args.prompts is None else _prompts(llm, args.prompts)
    sizes = {name: getattr(args, name) for name in ("num_tokens", "text_len", "temperature")} | {"seed": config.seed}
    with CountBar(not args.quiet, desc="Generating", unit="token", total=args.num_tokens) as bar:
        texts = own_texts(llm, args.out, prompts, **sizes, progress=lambda done: bar.update(done - bar.n))
    found = METHODS[args.method](args, llm, texts)
    if not args.quiet:
        given = json.dumps({"method": args.method} | found.options)
        print(f"{args.out}: {found.summary}; use it with --speculative-config '{given}'", file=sys.stderr)
    return 0


def _check_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Fills in the defaults of the method; an option that it has no use for ends the command."""
    own = DEFAULTS[args.method]
    for name in DEFAULTS["medusa"]:
        if getattr(args, name) is None:
            setattr(args, name, own.get(name))
        elif name not in own:
            parser.error(f"--{name.replace('_', '-')} has no use with --method {args.method}, which trains nothing")


def _prompts(llm: "LLM", path: Path) -> list[list[int]]:
    """The token ids of each line, asked in the model's chat template if it has one."""
    from jaxserve.core.errors import ConfigError
    from jaxserve.core.utf8_texts import read_utf8

    lines = [line.strip() for line in read_utf8(path, "prompts").splitlines() if line.strip()]
    tokenizer = llm.parts.tokenizer
    if not lines:
        raise ConfigError(f"{path} has no line with a prompt", "prompts")
    if tokenizer is None:
        raise ConfigError(
            "--prompts needs a tokenizer, which the model does not have: add --tokenizer FOLDER", "prompts"
        )
    if llm.parts.text.chat_template.source is None:
        return [tokenizer.encode(line) for line in lines]
    return [llm.render_chat([{"role": "user", "content": line}])["prompt_token_ids"] for line in lines]


def _depth(text: str) -> int:
    if (number := count(text)) > MAX_HEADS:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer from 1 to {MAX_HEADS}")
    return number


def _text_len(text: str) -> int:
    """Half of a text may be its prompt, and something must be drawn."""
    if (number := count(text)) < MIN_TEXT_LEN:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer of at least {MIN_TEXT_LEN}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve train-draft",
        description="Find what a model drafts with, on texts that it generates; it does not change. Medusa heads guess "
        "several tokens from one hidden state: jaxserve train-draft smollm2-135m-instruct --out ./heads. The folder "
        "gets the heads, how often their guesses are right, from which draft trees are made, and a page with curves. "
        "With --method eagle3 it gets a layer that reads hidden states of the model and drafts token by token; with "
        "--method layer_skip layers without which the model itself drafts. An interrupted run goes on.",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write, or to go on in")
    parser.add_argument(
        "--method",
        choices=tuple(DEFAULTS),
        default="medusa",
        help="medusa: heads are trained; eagle3: a layer is trained; layer_skip: layers without which the model drafts "
        "are searched, nothing is trained (default: medusa)",
    )
    parser.add_argument(
        "--depth",
        type=_depth,
        metavar="N",
        help="tokens, one after the other, whose guesses are trained: the heads of medusa (default: 3)",
    )
    parser.add_argument(
        "--draft-vocab-size",
        type=count,
        metavar="N",
        help="tokens that are learned, the most frequent of the texts; an EAGLE-3 draft knows no others (default: a "
        "quarter of the model's)",
    )
    parser.add_argument(
        "--num-tokens", type=count, metavar="N", help="tokens to generate (default: 200000, for layer_skip 2000)"
    )
    parser.add_argument("--text-len", type=_text_len, default=256, metavar="N", help="tokens of a text (default: 256)")
    parser.add_argument(
        "--prompts",
        type=existing_file,
        metavar="FILE",
        help="a prompt a line, asked in the model's chat template if it has one (default: questions that the model "
        "draws, or its first 16 tokens if it has no template)",
    )
    parser.add_argument(
        "--temperature",
        type=number(0, MAX_TEMPERATURE),
        default=0.7,
        metavar="X",
        help="at which texts are drawn after the prompt: the one that requests will have (default: 0.7)",
    )
    parser.add_argument(
        "--learning-rate", type=number(1e-6, 1), metavar="X", help="the highest (default: 0.002, for eagle3 0.001)"
    )
    parser.add_argument("--texts-per-step", type=count, metavar="N", help="texts of a step (default: 2)")
    parser.add_argument(
        "--epochs", type=count, metavar="N", help="how often texts are learned (default: 2, for eagle3 1)"
    )
    parser.add_argument("--max-steps", type=count, metavar="N", help="end the training earlier")
    parser.add_argument("--quiet", action="store_true", help="print no progress and no summary")
    skipped = ["speculative_config", "kv_policy", "compiled"]
    add_engine_flags(parser, skip=skipped, seed_help="seed of the texts and of their order", defaults=WEIGHTS)
    return parser
