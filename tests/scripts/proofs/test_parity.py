import numpy as np

from jaxserve.core.outputs import Logprob
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
