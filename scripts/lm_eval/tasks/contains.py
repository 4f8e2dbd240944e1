"""The scoring function of answers.yaml, in the form that lm-eval expects."""


def process_results(doc: dict, results: list[str]) -> dict[str, float]:
    """1 where the generated text contains the right answer without its article, else 0."""
    right = doc["choices"][doc["answer"]].lower()
    return {"contains": float(right.removeprefix("the ").removeprefix("a ") in results[0].lower())}
