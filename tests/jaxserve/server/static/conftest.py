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


@pytest.fixture
def open_page(chromium, server):
    """Opens the page in a tab; afterwards checks for requests to other sites and messages in the console."""
    tabs = []

    def opened(*size, **look):
        tab = chromium.tab(f"{server.url}/", *size, **look)
        tabs.append((tab, tab.__enter__()))
        tabs[-1][1].wait(f"document.querySelector('#model').textContent === '{NAME}'")
        return tabs[-1][1]

    yield opened
    for manager, tab in tabs:
        origins = {urlsplit(request["url"]).netloc for request in tab.requests}
        problems = tab.problems
        manager.__exit__(None, None, None)
        assert origins == {urlsplit(server.url).netloc}
        assert problems == []
    until(lambda: all_pages_are_back(server.llm))


@pytest.fixture
def page(open_page):
    return open_page()
