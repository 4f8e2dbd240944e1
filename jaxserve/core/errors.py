"""Host: the errors that users meet; each says what to do, and names the parameter that is to blame.

`RequestError` and `ConfigError` are ValueErrors, as users of other engines expect; the server answers 400 to the first.
"""


class JaxserveError(Exception):
    """Anything that jaxserve raises on purpose."""


class _ParameterError(JaxserveError, ValueError):
    """A value that is not accepted; `param` is the name that the user typed, or None."""

    def __init__(self, message: str, param: str | None = None):
        super().__init__(message)
        self.param = param

    def __reduce__(self):
        return type(self), (*self.args, self.param)


class RequestError(_ParameterError):
    """A request that cannot be served as asked: only this request fails."""


class QueueFullError(RequestError):
    """More requests or tokens wait than `max_num_waiting` or `max_waiting_tokens` (the `param`) allow: try later.

    Nothing of the call was queued. A server answers 429 or 503 to it. excess: samples or tokens that were too many.
    retry_after_s: whole seconds, at least 1, in which that many will have left the queue if it goes on as it did of
    late; None where nobody but the caller moves it on.
    """

    def __init__(self, message: str, param: str | None = None, excess: int = 1, retry_after_s: int | None = None):
        super().__init__(message, param)
        self.excess, self.retry_after_s = excess, retry_after_s

    def __reduce__(self):
        return type(self), (*self.args, self.param, self.excess, self.retry_after_s)


class ConfigError(_ParameterError):
    """An engine option, a model or a tokenizer that cannot be used: the engine does not start."""


class FrozenBucketError(JaxserveError, RuntimeError):
    """A shape, dtype or sharding that was not compiled before service began."""


class AbortedError(JaxserveError, RuntimeError):
    """Somebody waits for a request that was aborted."""


class LateError(JaxserveError, TimeoutError):
    """The time of a request was up, and there is nothing of it that could be given out."""


class EngineDeadError(JaxserveError, RuntimeError):
    """The engine loop has ended; requests in flight are lost and new ones are refused."""
