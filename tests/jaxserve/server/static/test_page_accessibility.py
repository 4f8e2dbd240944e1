"""axe-core finds nothing to report, at three widths, in light and dark, in all states of the page."""

import pytest

from tests.support.serving.page_states import SIZES, page_states, violations


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing(open_page, size, dark, tmp_path):
    page = open_page(SIZES[size], dark=dark)
    for state in page_states(page, tmp_path):
        assert violations(page) == [], state
    page.expect("responded with a status of 500")


def test_axe_notices_what_is_wrong(page):
    page.read(
        "document.querySelector('#prompt').labels[0].remove(); document.querySelector('#prompt').placeholder = ''"
    )
    page.read("document.querySelector('#hello').style.color = 'lightgray'")
    assert {rule for rule, _ in violations(page)} >= {"label", "color-contrast"}
