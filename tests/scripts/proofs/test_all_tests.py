"""The proof that all tests pass sees what fails, is missing or is left out."""

import pytest

from scripts.proofs.all_tests.proof import page

OTHERS = "======= 6448 passed, 12 deselected in 2238.05s (0:37:18) ======="
LINES = [
    "tests/a.py .... [100%]",
    "======= 12 passed, 3 deselected in 60.10s (0:01:00) =======",
    OTHERS,
    "======= 893 passed in 549.21s (0:09:09) ========",
    OTHERS,
]


def test_all_runs_have_passed():
    assert "| the server | 893 passed | 9 |" in page(LINES, 0)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (LINES, 1),
        (LINES[:-2] + LINES[-1:], 0),
        ([line.replace("893 passed", "892 passed, 1 skipped") for line in LINES], 0),
        ([line.replace("12 passed, 3 deselected", "1 failed, 11 passed") for line in LINES], 0),
    ],
    ids=["status", "missing", "skipped", "failed"],
)
def test_what_fails_is_seen(lines, status):
    with pytest.raises(SystemExit, match="failed"):
        page(lines, status)
