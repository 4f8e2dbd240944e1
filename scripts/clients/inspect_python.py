"""inspect-ai's evaluations with its provider for OpenAI-compatible servers."""

import tempfile
from importlib.metadata import version
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message

from scripts.clients.checks import MODEL, Checks, main

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Germany": "Berlin",
    "Spain": "Madrid",
    "Peru": "Lima",
}
SYSTEM = "Answer with one word."


def evaluated(checks: Checks, **options: Any) -> tuple[list[ModelOutput], float]:
    """The output of each sample, and the share that the scorer accepted."""
    samples = [Sample(input=f"What is the capital of {land}?", target=city) for land, city in CAPITALS.items()]
    task = Task(dataset=samples, solver=[system_message(SYSTEM), generate()], scorer=includes())
    with tempfile.TemporaryDirectory() as folder:
        (log,) = eval(
            task,
            model=f"openai-api/served/{MODEL}",
            model_base_url=f"{checks.url}/v1",
            model_args={"api_key": checks.key},
            log_dir=folder,
            display="none",
            max_retries=0,
            temperature=0,
            max_tokens=16,
            **options,
        )
        if log.status != "success":
            raise RuntimeError(log.error.message if log.error else log.status)
        return [sample.output for sample in log.samples], log.results.scores[0].metrics["accuracy"].value


def questions(checks: Checks) -> None:
    """An evaluation of six questions: texts, score and usage, also with log-probabilities and a stop string."""
    chats = [
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"What is the capital of {land}?"}]
        for land in CAPITALS
    ]
    for options in ({}, {"logprobs": True, "top_logprobs": 2}, {"seed": 1, "stop_seqs": [","]}):
        wanted = checks.direct_chats(chats, max_tokens=16, stop=options.get("stop_seqs"))
        outputs, accuracy = evaluated(checks, **options)
        checks.equal(f"texts with {options}", [each.completion for each in outputs], wanted)
        num_right = sum(city in text for city, text in zip(CAPITALS.values(), wanted, strict=True))
        checks.equal("accuracy", accuracy, num_right / len(CAPITALS))
        for output in outputs:
            checks.holds("usage", 0 < output.usage.output_tokens <= 16, str(output.usage))
            if "logprobs" in options:
                num_scored = len(output.choices[0].logprobs.content)
                checks.equal("log-probabilities", num_scored, output.usage.output_tokens)


if __name__ == "__main__":
    main(version("inspect-ai"), questions)
