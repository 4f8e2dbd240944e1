"""Wiring: what `jaxserve train-draft` finds, by method."""

import argparse
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from checkpoints.formats.atomic_files import write_json
from jaxserve.core.errors import ConfigError
from jaxserve.core.progress_bars import CountBar
from jaxserve.engine.build.eagle_folder import write_eagle
from jaxserve.engine.build.medusa_folder import write_medusa
from jaxserve.engine.llm import LLM
from jaxserve.train_draft.own_texts import OwnTexts
from jaxserve.train_draft.skip_search import find_skips
from jaxserve.train_draft.train_eagle import make_draft, train_eagle
from jaxserve.train_draft.train_medusa import hidden_states, train_medusa
from jaxserve.train_draft.training_loop import Trained, TrainingPlan
from jaxserve.train_draft.training_page import training_page
from jaxserve.train_draft.training_state import forget_state

PAGE, RESULTS, SKIPS = "training.html", "training.json", "skips.json"
NUM_DRAFTS = 4  # for which skipped layers are chosen


class Found(NamedTuple):
    """In words, and as options of an engine that uses it."""

    summary: str
    options: dict[str, Any]


def medusa(args: argparse.Namespace, llm: LLM, texts: OwnTexts) -> Found:
    """Train Medusa heads."""
    settings, params = _model_of(llm)
    vocab_size, plan = _vocab_size(args, settings), _plan(args, llm)
    with CountBar(not args.quiet, desc="Reading", unit="text") as bar:
        hidden = hidden_states(settings, params, texts, partial(_show, bar))
    with CountBar(not args.quiet, desc="Training", unit="step") as bar:
        shown = partial(_show, bar)
        trained = train_medusa(settings, params, texts, hidden, vocab_size, plan, args.out, shown)
    write_medusa(args.out, trained.weights, trained.shares, args.model)
    shares = _report(args, f"{args.model}: Medusa heads", texts, trained)
    return Found(f"{args.depth} heads, right in {shares}", {"model": str(args.out), "num_speculative_tokens": 8})


def eagle3(args: argparse.Namespace, llm: LLM, texts: OwnTexts) -> Found:
    """Train an EAGLE-3 draft."""
    if llm.config.tensor_parallel_size > 1:
        raise ConfigError("an EAGLE-3 draft is trained on one device: leave tensor_parallel_size out")
    settings, params = _model_of(llm)
    vocab_size = _vocab_size(args, settings)
    draft = make_draft(settings.config, texts, vocab_size)
    with CountBar(not args.quiet, desc="Training", unit="step") as bar:
        trained = train_eagle(settings, params, draft, texts, _plan(args, llm), args.out, partial(_show, bar))
    write_eagle(args.out, draft.config, trained.weights, draft.vocabulary, settings.mesh)
    shares = _report(args, f"{args.model}: EAGLE-3 draft", texts, trained)
    summary = f"an EAGLE-3 draft of {vocab_size} tokens, right one after the other in {shares}"
    return Found(summary, {"model": str(args.out), "num_speculative_tokens": args.depth})


def layer_skip(args: argparse.Namespace, llm: LLM, texts: OwnTexts) -> Found:
    """Search layers without which the model drafts."""
    model, params = _model_of(llm)
    with CountBar(not args.quiet, desc="Searching", unit="set") as bar:
        found = find_skips(model, params, texts, NUM_DRAFTS, partial(_show, bar))
    write_json(args.out / SKIPS, [asdict(one) for one in found])
    best = found[-1]
    return Found(
        f"without {len(best.skipped)} of {model.config.num_layers} layers ({SKIPS}) the likeliest token is the same at "
        f"a share of {best.agreement:.3f} of the positions: expected are {best.speed:.2f} times as many tokens per "
        f"second with {NUM_DRAFTS} drafts",
        {"skip_layers": list(best.skipped), "num_speculative_tokens": NUM_DRAFTS},
    )


METHODS = {"medusa": medusa, "eagle3": eagle3, "layer_skip": layer_skip}
OF_DENSE_WEIGHTS = ("eagle3", "layer_skip")  # they take matrices out of the model's layers


def check_weights(llm: LLM, method: str) -> None:
    """Raises ConfigError where a method does not work with the model's packed weights."""
    if method in OF_DENSE_WEIGHTS and llm.parts.runner.settings.model.packing.name:
        raise ConfigError(f"--method {method} needs dense weights: leave --quantization out", "quantization")


def _model_of(llm: LLM) -> tuple[Any, Any]:
    return llm.parts.runner.settings.model, llm.parts.runner.params


def _vocab_size(args: argparse.Namespace, settings: Any) -> int:
    return min(args.draft_vocab_size or settings.config.vocab_size // 4, settings.config.vocab_size)


def _plan(args: argparse.Namespace, llm: LLM) -> TrainingPlan:
    return TrainingPlan(
        args.depth, args.learning_rate, args.texts_per_step, args.epochs, args.max_steps, llm.config.seed
    )


def _report(args: argparse.Namespace, title: str, texts: OwnTexts, trained: Trained) -> str:
    """Writes the page and the same as JSON, and forgets the state; returns how often the likeliest guesses are right,
    in words."""
    facts = {
        "model": args.model,
        "tokens": int(texts.is_generated.sum()),
        "steps": len(trained.losses),
        "learning rate": args.learning_rate,
        "the likeliest token after the one before it is right": f"{trained.bigram_share:.3f}",
    }
    (args.out / PAGE).write_text(training_page(title, trained.losses, trained.shares, facts))
    found = {"bigram_share": trained.bigram_share, "shares": trained.shares, "losses": trained.losses.tolist()}
    write_json(args.out / RESULTS, {key: facts[key] for key in ("model", "tokens", "steps")} | found)
    forget_state(args.out)
    first = ", ".join(f"{share[0]:.3f}" for share in trained.shares)
    bigram = f"the likeliest token after the one before it: {trained.bigram_share:.3f}"
    return f"a share of {first} of held-out tokens ({bigram})"


def _show(bar: CountBar, done: int, total: int) -> None:
    bar.total = total
    bar.update(done - bar.n)
