"""Wiring: `jaxserve train-draft MODEL --out DIR`: finds what a model drafts with, on texts of its own: Medusa heads, or
layers that drafts skip."""

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxserve.cli.args.arg_types import MODEL_HELP, count, existing_file
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.models.config.medusa_heads import MAX_HEADS

if TYPE_CHECKING:
    from jaxserve.core.progress_bars import CountBar
    from jaxserve.engine.llm import LLM
    from jaxserve.train_draft.own_texts import OwnTexts

PAGE, SKIPS = "training.html", "skips.json"
NUM_TOKENS = {"medusa": 200_000, "layer_skip": 2_000}
NUM_DRAFTS = 4  # for which skipped layers are chosen
MIN_TEXT_LEN = 8


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    config = EngineConfig.create(args.model, **engine_options(args))

    from jaxserve.core.progress_bars import CountBar
    from jaxserve.engine.llm import LLM
    from jaxserve.train_draft.own_texts import own_texts

    args.out.mkdir(parents=True, exist_ok=True)
    llm = LLM.from_config(config, show_progress=not args.quiet)
    prompts = None if args.prompts is None else _prompts(llm, args.prompts)
    num_tokens = args.num_tokens or NUM_TOKENS[args.method]
    sizes = {"num_tokens": num_tokens, "text_len": args.text_len, "seed": config.seed}
    with CountBar(not args.quiet, desc="Generating", unit="token", total=num_tokens) as bar:
        texts = own_texts(llm, args.out, prompts, **sizes, progress=lambda done: bar.update(done - bar.n))
    found, options = {"medusa": _train_medusa, "layer_skip": _find_skips}[args.method](args, llm, texts)
    if not args.quiet:
        given = json.dumps({"method": args.method} | options)
        print(f"{found}; use it with --speculative-config '{given}'", file=sys.stderr)
    return 0


def _train_medusa(args: argparse.Namespace, llm: "LLM", texts: "OwnTexts") -> tuple[str, dict[str, Any]]:
    """What was found, in words, and the options of an engine that uses it."""
    from jaxserve.core.progress_bars import CountBar
    from jaxserve.engine.build.medusa_folder import write_medusa
    from jaxserve.train_draft.train_medusa import TrainingPlan, train_medusa
    from jaxserve.train_draft.training_page import training_page
    from jaxserve.train_draft.training_state import forget_state

    plan = TrainingPlan(
        args.num_heads, args.learning_rate, args.texts_per_step, args.epochs, args.max_steps, llm.config.seed
    )
    model, params = llm.parts.runner.settings.model, llm.parts.runner.params
    with CountBar(not args.quiet, desc="Training", unit="step") as bar:
        trained = train_medusa(model, params, texts, plan, args.out, partial(_show, bar))
    write_medusa(args.out, trained.heads, trained.shares, args.model)
    facts = {
        "model": args.model,
        "tokens": int(texts.is_generated.sum()),
        "steps": len(trained.losses),
        "learning rate": args.learning_rate,
        "the likeliest token after the one before it is right": f"{trained.bigram_share:.3f}",
    }
    (args.out / PAGE).write_text(training_page(f"{args.model}: Medusa heads", trained.losses, trained.shares, facts))
    forget_state(args.out)
    first = ", ".join(f"{share[0]:.3f}" for share in trained.shares)
    return (
        f"{args.out}: {args.num_heads} heads, right in a share of {first} of held-out tokens (the likeliest token "
        f"after the one before it: {trained.bigram_share:.3f})",
        {"model": str(args.out), "num_speculative_tokens": 8},
    )


def _find_skips(args: argparse.Namespace, llm: "LLM", texts: "OwnTexts") -> tuple[str, dict[str, Any]]:
    """The same of layers that drafts skip."""
    from checkpoints.formats.atomic_files import write_json
    from jaxserve.core.progress_bars import CountBar
    from jaxserve.train_draft.skip_search import find_skips

    model, params = llm.parts.runner.settings.model, llm.parts.runner.params
    with CountBar(not args.quiet, desc="Searching", unit="set") as bar:
        found = find_skips(model, params, texts, NUM_DRAFTS, partial(_show, bar))
    write_json(args.out / SKIPS, [asdict(one) for one in found])
    best = found[-1]
    return (
        f"{args.out / SKIPS}: without {len(best.skipped)} of {model.config.num_layers} layers the likeliest token is "
        f"the same at a share of {best.agreement:.3f} of the positions: expected are {best.speed:.2f} times as many "
        f"tokens per second with {NUM_DRAFTS} drafts",
        {"skip_layers": list(best.skipped), "num_speculative_tokens": NUM_DRAFTS},
    )


def _show(bar: "CountBar", done: int, total: int) -> None:
    bar.total = total
    bar.update(done - bar.n)


def _prompts(llm: "LLM", path: Path) -> list[list[int]]:
    """The token ids of each line, asked in the model's chat template if it has one."""
    from jaxserve.core.errors import ConfigError

    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
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


def _rate(text: str) -> float:
    """A learning rate."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number between 0 and 1")
    return value


def _num_heads(text: str) -> int:
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
        "With --method layer_skip it gets layers without which the model itself drafts. An interrupted run goes on.",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write, or to go on in")
    parser.add_argument(
        "--method",
        choices=tuple(NUM_TOKENS),
        default="medusa",
        help="medusa: heads are trained; layer_skip: layers without which the model drafts are searched, nothing is "
        "trained (default: medusa)",
    )
    parser.add_argument("--num-heads", type=_num_heads, default=3, metavar="N", help="heads (default: 3)")
    parser.add_argument(
        "--num-tokens", type=count, metavar="N", help="tokens to generate (default: 200000, for layer_skip 2000)"
    )
    parser.add_argument("--text-len", type=_text_len, default=256, metavar="N", help="tokens of a text (default: 256)")
    parser.add_argument(
        "--prompts",
        type=existing_file,
        metavar="FILE",
        help="a prompt a line, asked in the model's chat template if it has one (default: texts without a prompt)",
    )
    parser.add_argument("--learning-rate", type=_rate, default=1e-3, metavar="X", help="the highest (default: 0.001)")
    parser.add_argument("--texts-per-step", type=count, default=2, metavar="N", help="texts of a step (default: 2)")
    parser.add_argument("--epochs", type=count, default=1, metavar="N", help="how often texts are learned (default: 1)")
    parser.add_argument("--max-steps", type=count, metavar="N", help="end the training earlier")
    parser.add_argument("--quiet", action="store_true", help="print no progress and no summary")
    skipped = ["speculative_config", "kv_policy", "compiled"]
    add_engine_flags(parser, skip=skipped, seed_help="seed of the texts and of their order")
    return parser
