"""The closing figures of `jaxserve generate`."""

from types import SimpleNamespace

from jaxserve.cli.generate import summary
from jaxserve.core.outputs import CompletionOutput, RequestMetrics, RequestOutput


def output(num_tokens: int, first_token_s: float) -> RequestOutput:
    completion = CompletionOutput(index=0, text="", token_ids=[7] * num_tokens)
    metrics = RequestMetrics(arrival_s=0.0, first_token_s=first_token_s)
    return RequestOutput("id", None, [1], outputs=[completion], finished=True, metrics=metrics)


def test_loading_compiling_and_generating_are_timed_apart():
    clock = SimpleNamespace(num_compiled=2, num_cached=1, wall_s=60.0)
    shown = summary([output(48, 171.0), output(52, 172.0)], clock, started_s=100.0, loaded_s=105.0, finished_s=170.0)
    assert shown.splitlines() == [
        "model loaded in 5.0 s",
        "2 programs compiled in 60.0 s (1 of them read from the compilation cache)",
        "100 tokens generated in 5.0 s: 20.0 tokens/s, compilation not counted",
        "first token 71.0 s after the start of the process, loading and compilation included",
    ]
