"""Takes screenshots of the web page of a server of the demo model while other clients keep it busy."""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.page_pictures.client_load import clients
from tests.support.processes.browser import PHONE, WIDE, Tab, browser

MODEL = "smollm2-135m-instruct"
OPTIONS = "--port 0 --max-num-seqs 16 --max-num-batched-tokens 256 --max-model-len 2048 --num-pages 600".split()
FOLDER = Path("docs/screenshots")
MAX_BYTES = 300_000
QUESTION = "Why is the sky blue? Answer in two or three sentences."


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/screenshots", description=__doc__)
    parser.add_argument("--url", help="address of a running server (default: start one)")
    parser.add_argument("--clients", type=int, default=10, help="clients that produce load (default: 10)")
    parser.add_argument("--seconds", type=float, default=60, help="load before the first screenshot (default: 60)")
    args = parser.parse_args()
    if args.url:
        take(args.url.rstrip("/"), args.clients, args.seconds)
        return
    with serving() as url:
        take(url, args.clients, args.seconds)


@contextmanager
def serving() -> Iterator[str]:
    """Yields the address of a ready server."""
    command = [sys.executable, "-m", "jaxserve.cli.main", "serve", MODEL, *OPTIONS]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = ""
            for line in process.stderr:
                print(line, end="", file=sys.stderr)
                if found := re.search(r"listening on (http://\S+);", line):
                    url = found[1]
                if "ready after" in line:
                    break
            else:
                raise SystemExit("the server exited before it was ready")
            yield url
        finally:
            process.terminate()
            process.communicate()


def take(url: str, num_clients: int, seconds: float) -> None:
    """Takes four screenshots under the same load: light, dark, and two on a phone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with clients(url, num_clients), browser() as chromium:
        with chromium.tab(f"{url}/", WIDE, scale=1.5) as page:
            time.sleep(seconds)
            ask(page)
            keep(page, "light")
            page.set_dark(True)
            keep(page, "dark")
        with chromium.tab(f"{url}/", PHONE, scale=2) as page:
            ask(page)
            keep(page, "phone-chat")
            page.click("nav a[href='#engine']")
            time.sleep(seconds / 2)
            keep(page, "phone-engine")


def ask(page: Tab) -> None:
    """Asks two questions and returns while the second answer is streamed."""
    page.wait("document.title.includes('–')")
    page.click("summary")
    page.fill("[name=temperature]", "0.2")
    page.click("summary")
    page.fill("#prompt", QUESTION)
    page.press("Enter")
    page.wait("document.querySelector('.note').textContent", seconds=300)
    page.fill("#prompt", "And why is it red in the evening?")
    page.press("Enter")
    page.wait("document.querySelector('.turn:last-child .answer').textContent.length > 100", seconds=300)


def keep(page: Tab, name: str) -> None:
    page.read("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    picture = page.screenshot()
    if len(picture) > MAX_BYTES:
        raise SystemExit(f"{name}: {len(picture)} bytes; a screenshot may have at most {MAX_BYTES}")
    (FOLDER / f"{name}.png").write_bytes(picture)
    print(f"{FOLDER / name}.png: {len(picture) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
