"""Host: public exceptions; messages say what to do, and `param` names the parameter at fault.

`RequestError` and `ConfigError` are ValueErrors, as in other engines; the server responds 400 to the first.
"""

from typing import Any


class JaxserveError(Exception):
    """Base class of all exceptions of jaxserve."""


class _ParameterError(JaxserveError, ValueError):
    """A value that is not accepted. param: the name that the user gave, or None."""

    def __init__(self, message: str, param: str | None = None):
        super().__init__(message)
        self.param = param

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.param)


class RequestError(_ParameterError):
    """A request that cannot be served as asked; other requests are not affected."""


class QueueFullError(RequestError):
    """More samples or tokens would wait than `max_num_waiting` or `max_waiting_tokens` (the `param`) allow: try later.

    Nothing of the call was queued. The server responds 429 or 503. excess: samples or tokens above the limit.
    retry_after_s: whole seconds, at least 1, until that many have left the queue at its recent rate; None if only the
    caller's own steps empty it.
    """

    def __init__(self, message: str, param: str | None = None, excess: int = 1, retry_after_s: int | None = None):
        super().__init__(message, param)
        self.excess, self.retry_after_s = excess, retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.param, self.excess, self.retry_after_s)


class ConfigError(_ParameterError):
    """An engine option, model or tokenizer that cannot be used; the engine does not start."""


class FrozenBucketError(JaxserveError, RuntimeError):
    """A shape, dtype or sharding that was not compiled by `warm_up`."""


class AbortedError(JaxserveError, RuntimeError):
    """The request was aborted while a caller waited for it."""


class LateError(JaxserveError, TimeoutError):
    """A request timed out without a result."""


class EngineDeadError(JaxserveError, RuntimeError):
    """The engine loop has failed; requests in flight are lost and new ones are refused."""
