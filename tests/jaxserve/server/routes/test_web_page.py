"""The page's files: complete in the wheel, cached under names that change with their contents, from one origin."""

import re

import pytest
from hatchling.builders.wheel import WheelBuilder

from jaxserve.server.routes.web_page import INDEX, POLICY, digest_of, read_files
from tests.repository.modules import ROOT
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

STATIC = ROOT / "jaxserve" / "server" / "static"


@pytest.fixture(scope="module")
def server():
    with running(fake_llm()) as server:
        yield server


def paths_in(html: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"#][^"]*)"', html)


def test_all_files_of_the_page_exist_and_are_cached_forever(server):
    page = server.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    paths = paths_in(page.text)
    assert {path.rpartition("/")[2] for path in paths} == read_files().keys() - {INDEX}
    for path in paths:
        file = server.get(f"/{path}")
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
        assert file.headers["content-security-policy"] == POLICY


def test_the_page_is_revalidated_and_sent_if_it_changed(server):
    page = server.get("/")
    assert "no-cache" in page.headers["cache-control"]
    assert server.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    assert server.get("/", headers={"If-None-Match": '"other"'}).status_code == 200


OTHERS = ["app.js", "0123456789abcdef/app.js", "{}/index.html", "{}/none.js", "{}/..%2fpage.py"]


@pytest.mark.parametrize("path", OTHERS)
def test_nothing_else_is_served(server, path):
    assert server.get("/static/" + path.format(digest_of(read_files()))).status_code == 404


def test_the_digest_changes_with_any_file():
    contents = read_files()
    changed = [digest_of({**contents, name: contents[name] + b" "}) for name in contents]
    assert len({digest_of(contents), *changed}) == len(contents) + 1


def test_the_policy_allows_no_inline_code_and_no_other_origin():
    directives = dict(part.strip().split(" ", 1) for part in POLICY.split(";"))
    assert directives["default-src"] == "'none'"
    assert {directives[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
    assert directives["require-trusted-types-for"] == "'script'"


def test_modules_import_only_files_of_the_page():
    for name, content in read_files().items():
        imported = re.findall(r'from "([^"]*)"', content.decode())
        assert all(path.startswith("./") and path[2:] in read_files() for path in imported), name
        assert not re.search(rb"https?:(?!//www\.w3\.org/2000/svg)|@import|url\(", content), name


def test_pages_without_the_key_are_refused():
    with running(fake_llm(), api_key="secret") as server:
        assert server.get("/").status_code == 401
        assert server.get("/live").status_code == 401
        assert server.get("/", auth=("anyone", "secret")).status_code == 200


def test_the_wheel_has_every_file():
    builder = WheelBuilder(str(ROOT))
    packed = {file.distribution_path for file in builder.recurse_included_files()}
    assert packed >= {str(file.relative_to(ROOT)) for file in STATIC.iterdir()}
