"""Adapters are loaded by the admin alone, from the operator's folders alone; requests meet no half state."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxserve.core.errors import RequestError
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.routes.allowed_paths import allowed_path
from jaxserve.server.server_config import ServerConfig
from tests.support.fakes.fake_adapters import fake_adapters
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import NAME, running

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
ADMIN = {"Authorization": "Bearer admin"}
SHORT = {"prompt": "x", "max_tokens": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of adapters, one of another operator, and links from the first to the second."""
    base = tmp_path_factory.mktemp("adapters")
    for path in ("own/poet", "own/nested/clerk", "others/secret"):
        (base / path).mkdir(parents=True)
        (base / path / "adapter_config.json").write_text("{}")
    own, secret = base / "own", base / "others" / "secret"
    (own / "link").symlink_to(secret)
    (own / "hybrid").mkdir()
    (own / "hybrid" / "adapter_config.json").symlink_to(secret / "adapter_config.json")
    (own / "alias").symlink_to(own / "poet")
    (own / "loop").symlink_to(own / "loop")
    return base


@pytest.fixture(scope="module")
def running_admin(folders):
    hook = SimpleNamespace(on_read=None)
    adapters, reader = fake_adapters(before=lambda path: hook.on_read(path))
    options = {"admin_key": "admin", "api_key": ("client",), "lora_dirs": (str(folders / "own"),)}
    with running(fake_llm(adapters=adapters), **options) as server:
        yield Admin(server, reader, hook)


@pytest.fixture
def admin(running_admin):
    """A server with no adapters, and its admin. on_read: called with each path that is read."""
    running_admin.hook.on_read = lambda path: None
    running_admin.reader.num_reads.clear()
    yield running_admin
    for adapter in running_admin.server.llm.adapters:
        running_admin.server.llm.unload_adapter(adapter.name)


class Admin:
    def __init__(self, server, reader, hook):
        self.server, self.reader, self.hook = server, reader, hook

    def post(self, path, /, headers=ADMIN, **body):
        answer = self.server.post(path, body, headers=headers)
        return answer.status_code, answer.text

    def load(self, name, path, **others):
        return self.post(LOAD, lora_name=name, lora_path=str(path), **others)[0]

    def ask(self, model):
        return self.post("/v1/completions", **SHORT, model=model)[0]


def test_loading_and_unloading(admin, folders):
    assert admin.ask("poet") == 404
    path = folders / "own" / "poet"
    loaded = admin.post(LOAD, lora_name="poet", lora_path=str(path))
    assert loaded == (200, "Success: LoRA adapter 'poet' added successfully.")
    assert admin.ask("poet") == 200
    listed = admin.server.get("/v1/models", headers=ADMIN).json()["data"]
    (model,) = [each for each in listed if each["id"] == "poet"]
    assert (model["root"], model["parent"]) == (str(path), NAME)
    assert admin.post(UNLOAD, lora_name="poet") == (200, "Success: LoRA adapter 'poet' removed successfully.")
    assert admin.ask("poet") == 404
    status, text = admin.post(UNLOAD, lora_name="poet")
    assert status == 404
    assert "The lora adapter 'poet' cannot be found." in text


def test_a_name_is_loaded_once_unless_in_place(admin):
    assert admin.load("a", "poet") == 200
    status, text = admin.post(LOAD, lora_name="a", lora_path="poet")
    assert status == 400
    assert "The lora adapter 'a' has already been loaded." in text
    (first,) = admin.server.llm.adapters
    assert admin.load("a", "nested/clerk", load_inplace=True) == 200
    (second,) = admin.server.llm.adapters
    assert second.adapter_id != first.adapter_id
    assert second.request.lora_path.endswith("nested/clerk")


def test_an_adapter_is_unloaded_by_its_number(admin):
    assert [admin.load(name, "poet") for name in "ab"] == [200, 200]
    numbers = {adapter.name: adapter.adapter_id for adapter in admin.server.llm.adapters}
    assert admin.post(UNLOAD, lora_int_id=numbers["b"])[0] == 200
    assert admin.post(UNLOAD, lora_name="a", lora_int_id=numbers["b"])[0] == 404
    assert admin.post(UNLOAD, lora_name="a", lora_int_id=numbers["a"])[0] == 200


def test_what_is_missing_is_refused(admin):
    for body in ({}, {"lora_name": "a"}, {"lora_path": "poet"}, {"lora_name": "", "lora_path": "poet"}):
        status, text = admin.post(LOAD, **body)
        assert status == 400
        assert "Both 'lora_name' and 'lora_path' must be provided." in text
    assert admin.post(UNLOAD)[0] == 400
    for name in ("a,b", "a\nb", "x" * 300, NAME):
        status, text = admin.post(LOAD, lora_name=name, lora_path="poet")
        assert (status, "lora_name" in text) == (400, True)
    assert admin.post(LOAD, lora_name="a", lora_path="poet", pinned=True)[0] == 400
    assert not admin.reader.num_reads


def test_only_the_admin_loads(admin):
    for path in (LOAD, UNLOAD):
        body = {"lora_name": "poet", "lora_path": "poet"} if path == LOAD else {"lora_name": "poet"}
        assert admin.post(path, headers={}, **body)[0] == 401
        assert admin.post(path, headers={"Authorization": "Bearer client"}, **body)[0] == 401
        assert admin.post(path, headers=ADMIN, **body)[0] == 200


def test_an_engine_without_adapters_has_no_such_routes(folders):
    with running(fake_llm(), admin_key="admin", lora_dirs=(str(folders),)) as server:
        for path in (LOAD, UNLOAD):
            answer = server.post(path, {"lora_name": "a", "lora_path": "own/poet"}, headers=ADMIN)
            assert (answer.status_code, "--enable-lora" in answer.text) == (403, True)
            assert server.post(path, {}).status_code == 401


def refusal(path, **options):
    """Status and text of the refusal of a path."""
    with pytest.raises(ApiError) as caught:
        allowed_path(path, ServerConfig(**options))
    assert caught.value.param == "lora_path"
    return caught.value.status, str(caught.value)


def test_only_folders_of_the_operator_are_read(folders):
    own = folders / "own"
    dirs = {"lora_dirs": (str(own),)}
    for path in ("poet", "./poet/", "nested/../poet", "alias", str(own / "poet")):
        assert allowed_path(path, ServerConfig(**dirs)) == str(own / "poet")
    outside = (
        "../others/secret", "poet/../../others/secret", str(folders / "others" / "secret"), "/", "..", "/etc/passwd",
        "link", "hybrid", "/no/such/folder", "poet\0", "gs://bucket/adapter", "file:///etc", str(folders),
    )  # fmt: skip
    answers = {path: refusal(path, **dirs) for path in outside}
    assert {status for status, _ in answers.values()} == {403}, answers
    # Whether something lies there does not show.
    assert answers["/no/such/folder"] == answers[str(folders / "others" / "secret")]
    for path in ("unknown", "poet/adapter_config.json", "loop", "org/adapter", "x" * 300, "~"):
        assert refusal(path, **dirs)[0] == 404, path
    others = folders / "others"
    assert allowed_path("secret", ServerConfig(lora_dirs=("/no/such", str(others)))) == str(others / "secret")
    # Links among the operator's folders are followed.
    both = ServerConfig(lora_dirs=(str(own), str(others)))
    assert allowed_path("link", both) == str(others / "secret")
    assert allowed_path("hybrid", both) == str(own / "hybrid")


def test_remote_adapters_need_an_option(folders, monkeypatch):
    monkeypatch.chdir(folders)
    config = ServerConfig(lora_allow_remote=True)
    for path in ("gs://bucket/adapter", "org/adapter"):
        assert allowed_path(path, config) == path
        assert refusal(path, lora_dirs=("own",))[0] in (403, 404)
    assert "--lora-allow-remote" in refusal("gs://bucket/adapter", lora_dirs=("own",))[1]
    assert "--lora-dirs" in refusal("org/adapter")[1]
    # A path of this machine is none of the Hub: a reader would take what lies there.
    for path in ("others/secret", "../org/adapter", "/org/adapter", "org/adapter/x", "./adapter", "~/adapter"):
        assert refusal(path, lora_allow_remote=True)[0] == 403, path


def test_refused_paths_are_not_read(admin, folders):
    for path in (folders / "others" / "secret", "../others/secret", "org/adapter", "gs://bucket/adapter", "\0"):
        assert admin.load("x", path) in (403, 404)
    assert not admin.reader.num_reads


def test_files_that_cannot_be_used_are_refused_with_the_reason(admin):
    def fail(path):
        raise RequestError("adapter_config.json: r=999 is more than max_lora_rank", "lora_request")

    admin.hook.on_read = fail
    status, text = admin.post(LOAD, lora_name="a", lora_path="poet")
    assert (status, "r=999" in text, '"param":"lora_path"' in text) == (400, True, True)
    assert admin.ask("a") == 404
    assert admin.ask(NAME) == 200


def error_of(admin, path, **body):
    """Status and param of a refusal."""
    answer = admin.server.post(path, body, headers=ADMIN)
    return answer.status_code, answer.json()["error"]["param"]


def test_errors_name_the_field_that_is_at_fault(admin):
    assert error_of(admin, LOAD, lora_name=" ", lora_path="poet") == (400, "lora_name")
    assert error_of(admin, LOAD, lora_name="a", lora_path="unknown") == (404, "lora_path")
    assert error_of(admin, UNLOAD, lora_name="a") == (404, "lora_name")
    assert error_of(admin, UNLOAD, lora_int_id=99) == (404, "lora_int_id")
    assert admin.load("a", "poet") == 200
    assert error_of(admin, UNLOAD, lora_name="a", lora_int_id=99) == (404, "lora_int_id")
    assert error_of(admin, UNLOAD, lora_name="b", lora_int_id=99) == (404, "lora_name")


def test_an_adapter_that_is_unloaded_twice_at_once_is_not_found(admin, monkeypatch):
    assert admin.load("a", "poet") == 200
    found, adapters = admin.server.llm.adapters, type(admin.server.llm.parts.input_processor.adapters)
    admin.server.llm.unload_adapter("a")
    monkeypatch.setattr(adapters, "__iter__", lambda self: iter(found))
    assert error_of(admin, UNLOAD, lora_name="a") == (404, "lora_name")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(36, "File name too long")])
def test_a_folder_that_cannot_be_listed_is_refused(admin, monkeypatch, error):
    def fail(path):
        raise error

    monkeypatch.setattr(Path, "iterdir", fail)
    answer = admin.server.post(LOAD, {"lora_name": "a", "lora_path": "poet"}, headers=ADMIN)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "lora_path")
    assert error.strerror in answer.json()["error"]["message"]


def test_others_are_answered_while_an_adapter_is_read(admin):
    is_reading, may_end = threading.Event(), threading.Event()
    admin.hook.on_read = lambda path: (is_reading.set(), may_end.wait(30))
    statuses = []
    loading = threading.Thread(target=lambda: statuses.append(admin.load("a", "poet")))
    loading.start()
    assert is_reading.wait(30)
    assert admin.ask(NAME) == 200
    assert admin.ask("a") == 404
    may_end.set()
    loading.join()
    assert (statuses, admin.ask("a")) == ([200], 200)
