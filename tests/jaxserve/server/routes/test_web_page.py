"""The page's files: complete in the wheel, cached under names that change with their contents, from one origin."""

import json
import posixpath
import re

import pytest
from hatchling.builders.wheel import WheelBuilder

from jaxserve.server.routes.web_page import INDEX, POLICY, digest_of, read_files
from scripts.page_libraries.refresh import LIBRARIES, digests
from tests.repository.modules import ROOT
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

STATIC = ROOT / "jaxserve" / "server" / "static"
VENDOR = STATIC / "vendor"


@pytest.fixture(scope="module")
def server():
    with running(fake_llm()) as server:
        yield server


def paths_in(html: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"#][^"]*)"', html)


def test_all_files_of_the_page_exist_and_are_cached_forever(server):
    page = server.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    contents = read_files()
    before = f"static/{digest_of(contents)}/"
    files = {name for name in contents if not name.endswith(".woff2")} - {INDEX}
    assert {path.removeprefix(before) for path in paths_in(page.text)} == files
    with server.http() as client:
        for name in contents.keys() - {INDEX}:
            file = client.get(f"/{before}{name}")
            assert file.status_code == 200
            assert file.content == contents[name]
            assert "immutable" in file.headers["cache-control"]
            assert file.headers["content-security-policy"] == POLICY


def test_the_page_is_revalidated_and_sent_if_it_changed(server):
    page = server.get("/")
    assert "no-cache" in page.headers["cache-control"]
    assert server.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    assert server.get("/", headers={"If-None-Match": '"other"'}).status_code == 200


OTHERS = ["app.js", "0123456789abcdef/app.js", "{}/index.html", "{}/none.js", "{}/..%2fpage.py"]
OTHERS += [
    "{}/vendor/versions.json",
    "{}/vendor/katex/LICENSE",
    "{}/chat",
    "{}/chat/",
    "{}//app.js",
]
OTHERS += ["{}/%2e%2e/web_page.py", "{}/chat%5cchat.js"]


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
    assert {directives[f"{kind}-src"] for kind in ("script", "style", "img", "font", "connect")} == {"'self'"}
    assert (directives["require-trusted-types-for"], directives["trusted-types"]) == ("'script'", "'none'")


def test_modules_import_only_files_of_the_page():
    contents = read_files()
    own = [name for name in contents if not name.startswith("vendor/")]
    for name in own:
        text = contents[name].decode()
        for path in re.findall(r'(?:from|import) "([^"]*)"', text):
            assert path.startswith("."), name
            assert posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) in contents, (name, path)
        assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)//|@import|url\(", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|DOMParser|document\.write|eval\(", text), name


def test_the_libraries_are_those_of_their_packages():
    """Compared with the digests of versions.json, which scripts.page_libraries.refresh writes."""
    versions = json.loads((VENDOR / "versions.json").read_text())
    assert versions.keys() == {folder.name for folder in VENDOR.iterdir() if folder.is_dir()} == LIBRARIES.keys()
    for name, library in versions.items():
        assert (library["package"], library["version"]) == (LIBRARIES[name].package, LIBRARIES[name].version)
        assert library["license"] in {"MIT", "BSD-3-Clause"}
        assert "LICENSE" in library["files"]
        assert library["files"] == digests(VENDOR / name)
        assert max((VENDOR / name / file).stat().st_size for file in library["files"]) < 5 * 2**20


def test_pages_without_the_key_are_refused():
    with running(fake_llm(), api_key="secret") as server:
        assert server.get("/").status_code == 401
        assert server.get("/live").status_code == 401
        assert server.get("/", auth=("anyone", "secret")).status_code == 200


def test_the_wheel_has_every_file():
    builder = WheelBuilder(str(ROOT))
    packed = {file.distribution_path for file in builder.recurse_included_files()}
    assert packed >= {str(file.relative_to(ROOT)) for file in STATIC.rglob("*") if file.is_file()}
