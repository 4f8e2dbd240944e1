"""Host: the errors of finding, reading and writing checkpoints."""


class CheckpointError(ValueError):
    """A checkpoint file is malformed or lacks tensors that the model needs."""


class SourceError(ValueError):
    """A source names no readable model, or fetching it failed."""
