import ml_dtypes
import numpy as np
import pytest

from jaxserve.core.outputs import Logprob
from scripts.proofs import parity
from scripts.proofs.parity import compare, read_goldens


def test_the_comparison_notices_a_wrong_token():
    """Control: one changed token far from a tie is detected."""
    _, golden = read_goldens("smollm2-135m-instruct")
    row = int(np.argmax(golden["gaps"].min(axis=1)))

    class Output:
        token_ids = golden["tokens"][row].tolist()
        logprobs = None

    Output.token_ids[10] += 1
    Output.logprobs = [{t: Logprob(float(lp))} for t, lp in zip(Output.token_ids, golden["logprobs"][row], strict=True)]
    result = compare([Output], {key: golden[key][[row]] for key in ("tokens", "logprobs", "gaps")})
    assert [fault["token"] for fault in result["faults"]] == [10]


@pytest.mark.parametrize("name", parity.MODELS)
def test_errors_are_allowed_as_float32_has_them(name):
    """The oracle's own are within the limits; control: log-probabilities rounded to bfloat16 are far outside."""
    _, golden = read_goldens(name)
    largest, mean = parity.tolerances(golden)
    errors = np.abs(golden["float32_logprobs"] - golden["logprobs"])
    assert 1e-7 < errors.mean() < mean < 5e-6
    assert errors.max() < largest < 4e-4
    rounded = np.abs(golden["logprobs"].astype(ml_dtypes.bfloat16).astype(np.float32) - golden["logprobs"])
    assert rounded.mean() > 10 * mean
