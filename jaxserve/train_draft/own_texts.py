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
from jaxserve.train_draft.openings import openings

FILE = "texts.npz"
BATCH = 128  # texts between two writes


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


def prepare_folder(folder: Path) -> None:
    """Makes it. Raises ConfigError where it is not empty and no training has begun in it, that is, has no `FILE`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        begun = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made ({error.strerror}): name another folder", "out") from error
    if begun and not begun & {FILE, f"{FILE}.partial"}:
        raise ConfigError(f"{folder} is not empty, and no training has begun in it: name another folder", "out")


def own_texts(
    llm: LLM,
    folder: Path,
    prompts: list[list[int]] | None,
    *,
    num_tokens: int,
    text_len: int,
    temperature: float,
    seed: int,
    progress: Callable[[int], None],
) -> OwnTexts:
    """As many texts as have `num_tokens` drawn tokens, which begin as `openings` says. progress: called with the tokens
    so far."""
    key = _key(llm, prompts, text_len=text_len, temperature=temperature, seed=seed)
    texts = _read(folder / FILE, text_len, key)
    while (num_drawn := int(texts.is_generated.sum())) < num_tokens:
        progress(num_drawn)
        numbers = range(len(texts.tokens), len(texts.tokens) + BATCH)
        asked = [opening[: text_len // 2] for opening in openings(llm, prompts, numbers, seed)]
        params = [
            SamplingParams(seed=seed + number, max_tokens=text_len - len(opening), temperature=temperature)
            for number, opening in zip(numbers, asked, strict=True)
        ]
        outputs = llm.generate(asked, params, use_tqdm=False)
        texts = _joined(texts, asked, [output.outputs[0].token_ids for output in outputs])
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


def _key(llm: LLM, prompts: list[list[int]] | None, **options: float) -> str:
    """What texts depend on, other than their number."""
    digest = None if prompts is None else hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:12]
    of_model = {name: getattr(llm.config, name) for name in ("model", "revision", "tokenizer")}
    return json.dumps({**of_model, "prompts": digest, **options})


def _read(path: Path, text_len: int, key: str) -> OwnTexts:
    if not path.exists():
        none = np.zeros(0, np.int32)
        return OwnTexts(np.zeros((0, text_len), np.int32), none, none)
    try:
        with np.load(path, allow_pickle=False) as file:
            texts, known = OwnTexts(file["tokens"], file["starts"], file["ends"]), str(file["key"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} cannot be read ({error}): empty the folder, or name another") from error
    if known != key or texts.tokens.shape != (len(texts.starts), text_len):
        raise ConfigError(f"{path} has texts with {known} instead of {key}: empty the folder, or name another")
    return texts
