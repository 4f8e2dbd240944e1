"""Trains a LoRA adapter (Hu et al., arXiv 2106.09685) of a model on texts, and writes it as PEFT does.

The adapter's products are added to the weights inside the loss, which is exact and needs nothing of the model.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from checkpoints.adapters.write_adapter import write_adapter
from jaxserve import pure
from jaxserve.cli.args.arg_types import count, existing_file, number
from jaxserve.core.errors import ConfigError
from jaxserve.core.progress_bars import CountBar
from jaxserve.functional.cut_text import cut_text
from jaxserve.models.params import Params
from scripts.lora.lora_tree import PARTS, Lora, draw, exported, merged

TEXT = Path(__file__).parents[2] / "docs" / "glossary.md"
TARGETS = [part for parts in PARTS.values() for part in parts]
WARM_UP = 0.05  # share of the steps in which the learning rate rises


def train_lora(
    model: str,
    texts: Sequence[str],
    folder: Path,
    *,
    rank: int = 8,
    alpha: float = 16,
    steps: int = 200,
    seed: int = 0,
    targets: Sequence[str] = ("q", "v"),
    learning_rate: float = 2e-3,
    piece_len: int = 96,
    show_progress: bool = False,
) -> list[float]:
    """Writes the adapter to `folder`, and returns the loss of each step, in nats for a token.

    texts are cut into pieces of `piece_len` tokens; each step learns one of them with AdamW. targets: of q, k, v, o,
    gate, up, down. Raises ConfigError for others, or for a model without a tokenizer.
    """
    if not targets or not set(targets) <= set(TARGETS):
        raise ConfigError(f"targets={list(targets)} must be some of {', '.join(TARGETS)}", "targets")
    base = pure.load(model, dtype="float32")
    if base.tokenizer is None:
        raise ConfigError(f"{model} has no tokenizer: name a model that has one", "model")
    pieces = np.concatenate([cut_text(base.tokenizer.encode(text), piece_len) for text in texts])
    lora, losses = learned(
        base, pieces, draw(base.config, targets, rank, seed), alpha / rank, steps, seed, learning_rate, show_progress
    )
    write_adapter(folder, exported(lora, alpha / rank), scale=alpha / rank, base=model)
    return losses


def learned(
    base: pure.PureModel,
    pieces: np.ndarray,
    lora: Lora,
    scale: float,
    steps: int,
    seed: int,
    learning_rate: float,
    show_progress: bool,
) -> tuple[Lora, list[float]]:
    """The matrices after training, and the loss of each step. pieces: int32[N, T]; a step learns one."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, max(1, int(WARM_UP * steps)), steps + 1)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.0))
    step = jax.jit(partial(_learn, base.settings, optimizer, scale), donate_argnums=(0, 1))
    state, losses = optimizer.init(lora), list[float]()
    order = np.random.default_rng(seed).integers(len(pieces), size=steps)
    with CountBar(show_progress, desc="Training", unit="step", total=steps) as bar, jax.set_mesh(base.mesh):
        for number in order:
            lora, state, loss = step(lora, state, base.params, jnp.asarray(pieces[number][None]))
            losses.append(float(loss))
            bar.update(1)
    return lora, losses


def _learn(
    settings: pure.Settings, optimizer: Any, scale: float, lora: Lora, state: Any, params: Params, tokens: jax.Array
) -> tuple[Lora, Any, jax.Array]:
    def loss_of(lora: Lora) -> jax.Array:
        weights = merged(settings.config, params, lora, scale)
        hidden, _ = pure.forward(settings, weights, tokens)
        logits = pure.logits(settings, weights, hidden[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, gradients = jax.value_and_grad(loss_of)(lora)
    updates, state = optimizer.update(gradients, state, lora)
    return optax.apply_updates(lora, updates), state, loss


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/train_lora", description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct", help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--text", type=existing_file, nargs="+", default=[TEXT], metavar="FILE", help="(default: the glossary)"
    )
    parser.add_argument("--rank", type=count, default=8, help="(default: %(default)s)")
    parser.add_argument("--alpha", type=number(0, 1e6), default=16, help="(default: %(default)s)")
    parser.add_argument("--steps", type=count, default=200, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=["q", "v"], help="(default: q v)")
    args = parser.parse_args(argv)
    texts = [path.read_text(encoding="utf-8") for path in args.text]
    options = {name: getattr(args, name) for name in ("rank", "alpha", "steps", "seed", "targets")}
    losses = train_lora(args.model, texts, args.out, show_progress=True, **options)
    tenth = max(1, len(losses) // 10)
    print(f"{args.out}: loss {np.mean(losses[:tenth]):.3f} at first, {np.mean(losses[-tenth:]):.3f} at last")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
