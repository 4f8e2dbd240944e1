"""Host: what goes wrong between a user's words and a loaded tree."""


class CheckpointError(ValueError):
    """A checkpoint file is malformed, or does not hold the tensors that the model needs."""


class SourceError(ValueError):
    """A source names nothing that can be read, or fetching it failed."""
