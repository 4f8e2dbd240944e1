import pytest

from tests.support.fakes.fake_llm import all_pages_are_back
from tests.support.serving.http_server import running
from tests.support.serving.recited_text import reciting_llm


@pytest.fixture(scope="module")
def server():
    """Recites one text; modules that need another model have a fixture of this name themselves."""
    with running(reciting_llm()) as server:
        yield server
    assert all_pages_are_back(server.llm)


@pytest.fixture
def client(server):
    with server.openai() as client:
        yield client
