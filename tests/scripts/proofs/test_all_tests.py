"""The proof that all tests pass sees what fails, is missing or is left out."""

import pytest

from scripts.proofs.all_tests.proof import page

LINES = [
    "tests/a.py .... [100%]",
    "======= 12 passed, 3 deselected in 60.10s (0:01:00) =======",
    "======= 893 passed in 549.21s (0:09:09) ========",
    "======= 6448 passed, 12 deselected in 2238.05s (0:37:18) =======",
]


def test_all_runs_have_passed():
    assert "| the server | 893 passed | 9 |" in page([*LINES, LINES[-1]], 0)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (LINES, 1),
        (LINES[:-1], 0),
        ([*LINES[:-1], "======= 6448 passed, 1 skipped in 2238.05s ======="], 0),
        ([*LINES[:-1], "======= 1 failed, 6448 passed in 2238.05s ======="], 0),
    ],
    ids=["status", "missing", "skipped", "failed"],
)
def test_what_fails_is_seen(lines, status):
    with pytest.raises(SystemExit, match="failed"):
        page(lines, status)
