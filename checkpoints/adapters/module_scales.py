"""Host: `module_scales`: the scales of an adapter's modules, by its configuration, with which its file must agree."""

from collections.abc import Sequence

from checkpoints.adapters.adapter_config import ALL_LINEAR, AdapterConfig
from checkpoints.adapters.adapter_modules import AdapterModule
from checkpoints.adapters.name_patterns import NamePatterns
from checkpoints.errors import CheckpointError, listed


def module_scales(
    where: str, config: AdapterConfig, modules: Sequence[AdapterModule], num_layers: int
) -> dict[str, float]:
    """By name. Raises `CheckpointError` for a module of another rank than the configuration says, for one that it
    does not target, and for one that it targets and that the file lacks in some layers only."""
    first = modules[0].name
    head = first[: first.index("layers.")]
    ends = sorted({_end(module) for module in modules})
    names = [f"{head}layers.{layer}.{end}" for layer in range(num_layers) for end in ends]
    patterns = NamePatterns(names)
    try:
        targets = _targets(config, names, patterns)
        ranks = _chosen(names, config.rank_pattern, config.rank, patterns)
        alphas = _chosen(names, config.alpha_pattern, config.alpha, patterns)
    except CheckpointError as error:
        raise CheckpointError(f"{where}: {error}") from error
    found = {module.name: module.rank for module in modules}
    problems = [f"unexpected: {name} is not one of target_modules" for name in found if name not in targets]
    problems += [f"missing: {name} is one of target_modules" for name in names if name in targets and name not in found]
    problems += [
        f"rank: {name} has rank {rank}, the configuration says {ranks[name]}"
        for name, rank in found.items()
        if name in targets and rank != ranks[name]
    ]
    for layer in config.layers or ():
        if layer >= num_layers:
            problems.append(f"missing: layers_to_transform has {layer}, and the model has {num_layers} layers")
    if problems:
        raise CheckpointError(f"{where}: its tensors and its configuration differ{listed(problems)}")
    return {name: config.scale(rank, alphas[name]) for name, rank in found.items()}


def _end(module: AdapterModule) -> str:
    """The name within the layer."""
    return module.name.rpartition(f"layers.{module.layer}.")[2]


def _targets(config: AdapterConfig, names: Sequence[str], patterns: NamePatterns) -> frozenset[str]:
    found = _matching(config.targets, names, patterns)
    if config.layers is not None:
        layers = {f"layers.{layer}" for layer in config.layers}
        whole = frozenset(config.targets) & found  # whole names are of one layer
        found = whole | {name for name in found if ".".join(name.split(".")[-4:-2]) in layers}
    return found - _matching(config.excluded, names, patterns)


def _matching(chosen: tuple[str, ...] | str, names: Sequence[str], patterns: NamePatterns) -> frozenset[str]:
    """The names that end with one of these words, or match an expression as a whole."""
    if chosen == ALL_LINEAR:
        return frozenset(names)
    if isinstance(chosen, str):
        return patterns.matching(chosen)
    ends = set(chosen)
    return frozenset(name for name in names if not ends.isdisjoint(_ends_of(name)))


def _ends_of(name: str) -> set[str]:
    words = name.split(".")
    return {".".join(words[i:]) for i in range(len(words))}


def _chosen[T](names: Sequence[str], by_pattern: dict[str, T], otherwise: T, patterns: NamePatterns) -> dict[str, T]:
    """For each name the value of the first expression that its end matches."""
    chosen = dict[str, T]()
    for pattern, value in by_pattern.items():
        for name in patterns.matching(rf"(?:.*\.)?({pattern})"):
            chosen.setdefault(name, value)
    return {name: chosen.get(name, otherwise) for name in names}
