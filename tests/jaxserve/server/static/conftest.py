"""The page in headless Chromium, on a server whose model repeats one text."""

import time
from urllib.parse import urlsplit

import pytest

from tests.support.fakes.fake_llm import Reciter, all_pages_are_back, fake_llm
from tests.support.processes.browser import browser
from tests.support.serving.http_server import NAME, running, until
from tests.support.serving.web_page import SAID


@pytest.fixture(scope="package")
def server():
    llm = fake_llm(Reciter(264, said=SAID))
    submit = llm.parts.runner.submit
    llm.parts.runner.submit = lambda plan: time.sleep(0.01) or submit(plan)
    with running(llm) as server:
        yield server


@pytest.fixture(scope="package")
def chromium():
    with browser() as chromium:
        yield chromium


@pytest.fixture(scope="package")
def tab(chromium, server):
    with chromium.tab(f"{server.url}/") as tab:
        yield tab


@pytest.fixture
def open_page(tab, server):
    """Opens the page as for the first time; afterwards checks for requests to other sites and console messages."""

    def opened(*size, **look):
        tab.reset(f"{server.url}/", *size, **look)
        tab.wait(f"document.querySelector('#model').textContent === '{NAME}'")
        return tab

    yield opened
    assert {urlsplit(request["url"]).netloc for request in tab.requests} == {urlsplit(server.url).netloc}
    assert tab.problems == []
    tab.open("about:blank")
    until(lambda: all_pages_are_back(server.llm))


@pytest.fixture
def page(open_page):
    return open_page()
