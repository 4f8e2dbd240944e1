"""Wiring: texts that a model generates for the training of its draft heads: those resemble what it will be asked to
confirm. A file is kept after each batch, so an interrupted run goes on."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from checkpoints.formats.atomic_files import whole_file
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.engine.llm import LLM

FILE = "texts.npz"
BATCH = 64  # texts between two writes


@dataclass(frozen=True, slots=True)
class OwnTexts:
    """tokens: int32[N, L], zeros past a text's end. starts, ends: of each the first drawn token, and one past the
    last."""

    tokens: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def is_generated(self) -> np.ndarray:
        """bool[N, L]: tokens that the model has drawn."""
        place = np.arange(self.tokens.shape[1], dtype=np.int32)[None]
        return (place >= self.starts[:, None]) & (place < self.ends[:, None])


def own_texts(
    llm: LLM,
    folder: Path,
    prompts: list[list[int]] | None,
    *,
    num_tokens: int,
    text_len: int,
    seed: int,
    progress: Callable[[int], None],
) -> OwnTexts:
    """As many texts as have `num_tokens` drawn tokens, at temperature 1; prompts: asked in turn; None: texts from their
    start. progress: called with the tokens so far."""
    key = _key(llm, prompts, text_len=text_len, seed=seed)
    texts = _read(folder / FILE, text_len, key)
    own, first = prompts or [[_start_token(llm)]], len(texts.tokens)
    while (num_drawn := int(texts.is_generated.sum())) < num_tokens:
        progress(num_drawn)
        numbers = range(first, first + BATCH)
        asked = [own[i % len(own)][: text_len // 2] for i in numbers]
        params = [
            SamplingParams(seed=seed + i, max_tokens=text_len - len(prompt), ignore_eos=prompts is None)
            for i, prompt in zip(numbers, asked, strict=True)
        ]
        outputs = llm.generate(asked, params, use_tqdm=False)
        drawn = [output.outputs[0].token_ids for output in outputs]
        texts = _joined(texts, asked, drawn)
        first += BATCH
        with whole_file(folder / FILE) as file:
            np.savez(file, tokens=texts.tokens, starts=texts.starts, ends=texts.ends, key=np.array(key))
    progress(num_drawn)
    count = 1 + int(np.searchsorted((texts.ends - texts.starts).cumsum(), num_tokens))
    return OwnTexts(texts.tokens[:count], texts.starts[:count], texts.ends[:count])


def _joined(texts: OwnTexts, asked: list[list[int]], drawn: list[list[int]]) -> OwnTexts:
    tokens = np.zeros((len(asked), texts.tokens.shape[1]), np.int32)
    for row, prompt, more in zip(tokens, asked, drawn, strict=True):
        row[: len(prompt) + len(more)] = [*prompt, *more]
    starts = np.array([len(prompt) for prompt in asked], np.int32)
    ends = starts + np.array([len(more) for more in drawn], np.int32)
    return OwnTexts(
        np.concatenate([texts.tokens, tokens]),
        np.concatenate([texts.starts, starts]),
        np.concatenate([texts.ends, ends]),
    )


def _key(llm: LLM, prompts: list[list[int]] | None, **options: int) -> str:
    """What texts depend on, other than their number."""
    digest = None if prompts is None else hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:12]
    return json.dumps({"model": llm.config.model, "prompts": digest, **options})


def _read(path: Path, text_len: int, key: str) -> OwnTexts:
    if not path.exists():
        none = np.zeros(0, np.int32)
        return OwnTexts(np.zeros((0, text_len), np.int32), none, none)
    try:
        with np.load(path, allow_pickle=False) as file:
            texts, known = OwnTexts(file["tokens"], file["starts"], file["ends"]), str(file["key"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} cannot be read ({error}): delete it to generate new texts") from error
    if known != key or texts.tokens.shape != (len(texts.starts), text_len):
        raise ConfigError(f"{path} has texts with {known} instead of {key}: delete it, or name another folder")
    return texts


def _start_token(llm: LLM) -> int:
    """The token before every text, or the one after."""
    tokenizer = llm.parts.tokenizer
    if tokenizer is None:
        return 0
    return tokenizer.bos_id if tokenizer.bos_id is not None else next(iter(tokenizer.eos_ids), 0)
