"""axe-core finds nothing to report in all states of the page; `scripts.page_pictures.axe_report` has each width in
light and dark."""

import pytest

from tests.support.serving.page_states import SIZES, page_states, violations


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("size", "dark"), list(zip(SIZES, (False, True, True), strict=True)))
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
