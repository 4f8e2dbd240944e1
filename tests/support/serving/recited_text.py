"""A served model that recites one text, and what its engine makes of a prompt."""

from jaxserve import SamplingParams
from tests.support.fakes.fake_llm import Reciter, fake_llm

SAID = "naïve 😀 cafés; ünïcödé, "


def reciting_llm():
    return fake_llm(Reciter(264, said=SAID))


def generated(prompt, **params):
    """The engine's output through the Python API."""
    (output,) = reciting_llm().generate(prompt, SamplingParams(**params), use_tqdm=False)
    return output
