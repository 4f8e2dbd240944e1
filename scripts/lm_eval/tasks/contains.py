"""Scores of answers.yaml, as lm-eval calls for them."""


def process_results(doc: dict, results: list[str]) -> dict[str, float]:
    """1 where the right answer, its article left out, stands in what was said."""
    right = doc["choices"][doc["answer"]].lower()
    return {"contains": float(right.removeprefix("the ").removeprefix("a ") in results[0].lower())}
