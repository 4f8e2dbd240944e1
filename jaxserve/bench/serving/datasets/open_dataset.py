"""Host: `open_dataset`: a dataset by its name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxserve.bench.serving.datasets import random_dataset, text_files, traces
from jaxserve.bench.serving.datasets.request_specs import Dataset
from jaxserve.bench.serving.options import FROM_FILES, DatasetOptions
from jaxserve.core.errors import ConfigError

OPENERS: dict[str, Callable[..., Dataset]] = {
    "random": random_dataset.random_prompts,
    "prefix_repetition": random_dataset.prefix_repetition,
    "custom": text_files.custom,
    "sharegpt": text_files.sharegpt,
    "trace": traces.trace,
}


def open_dataset(name: str, options: DatasetOptions, path: Path | None) -> Dataset:
    """path: of the datasets in `FROM_FILES` only. Raises `RequestError` where the file is malformed."""
    if (name in FROM_FILES) != (path is not None):
        fault = "is synthetic: leave out --dataset-path" if path else "needs --dataset-path"
        raise ConfigError(f"--dataset-name {name} {fault}", param="dataset_path")
    arguments: list[Any] = [options] if path is None else [options, path]
    return OPENERS[name](*arguments)
