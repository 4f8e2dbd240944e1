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
from tests.support.processes.browser import PHONE, Tab, browser
from tests.support.serving.web_page import IS_DONE, press_button

MODEL = "smollm2-135m-instruct"
OPTIONS = "--port 0 --max-num-seqs 16 --max-num-batched-tokens 256 --max-model-len 2048 --num-pages 600".split()
FOLDER = Path("docs/screenshots")
MAX_BYTES = 300_000
ANSWER = "document.querySelector('.turn:last-child .answer')"
HAS_CODE = f"(!!{ANSWER}?.querySelector('.code') && {ANSWER}.textContent.length > 200)"
SIZES = {"wide": (1440, 900), "narrow": (1000, 760), "phone": PHONE}
SCALES = {"wide": 1.25, "narrow": 1.25, "phone": 2}
QUESTIONS = (
    "Why is the sky blue? Answer in two sentences.",
    "Write a Python function that reverses a string, in a code block that begins with ```python, and explain it.",
)


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
    """Takes pictures of three widths under the same load, light and dark, and of the phone's view of the engine."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with clients(url, num_clients), browser() as chromium:
        for name, size in SIZES.items():
            with chromium.tab(f"{url}/", size, scale=SCALES[name]) as page:
                if name == "wide":
                    time.sleep(seconds)
                ask(page)
                for theme in ("light", "dark"):
                    page.set_dark(theme == "dark")
                    keep(page, f"{name}-{theme}")
                if name == "phone":
                    page.click("nav a[href='#engine']")
                    time.sleep(seconds / 2)
                    keep(page, "phone-engine")


def ask(page: Tab) -> None:
    """Asks two questions and returns while the second answer is streamed, again until it has code."""
    page.wait("document.title.includes('–')")
    page.click("#settings summary")
    page.fill("[name=temperature]", "0.3")
    page.fill("[name=max_tokens]", "160")
    page.click("#settings summary")
    first, second = QUESTIONS
    page.fill("#prompt", first)
    page.press("Enter")
    page.wait(IS_DONE, seconds=300)
    page.fill("#prompt", second)
    page.press("Enter")
    while True:
        page.wait(f"{HAS_CODE} || {IS_DONE}", seconds=300)
        if page.read(HAS_CODE):
            return
        press_button(page, "Again")


def keep(page: Tab, name: str) -> None:
    page.read("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    picture = page.screenshot()
    if len(picture) > MAX_BYTES:
        raise SystemExit(f"{name}: {len(picture)} bytes; a screenshot may have at most {MAX_BYTES}")
    (FOLDER / f"{name}.png").write_bytes(picture)
    print(f"{FOLDER / name}.png: {len(picture) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
