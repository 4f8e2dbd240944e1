"""Headless Chromium, controlled by the DevTools protocol over two pipes: keyboard input, screen sizes and colors.

Tests that use it are skipped if it is not installed, but never in CI.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# It may connect to this machine only.
HOSTS = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
FLAGS = (
    "--headless --remote-debugging-pipe --no-first-run --disable-gpu --disable-dev-shm-usage --disable-extensions "
    "--disable-background-networking --disable-component-update --disable-sync --force-color-profile=srgb "
    "--font-render-hinting=none"
).split()
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}  # code, text
SHIFT = 8
PATIENCE_S = 20.0
WIDE, PHONE = (1280, 800), (360, 740)


def find() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def _require() -> str:
    if (path := find()) is None:
        message = "Chromium is not installed (Debian, Ubuntu: apt install chromium)"
        pytest.fail(message) if "CI" in os.environ else pytest.skip(message)
    return path


@contextmanager
def browser() -> Iterator["Browser"]:
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        chromium = Browser(_require(), Path(folder))
        try:
            yield chromium
        finally:
            chromium.close()


class Browser:
    """One browser process; messages are JSON, each followed by a zero byte."""

    def __init__(self, path: str, folder: Path):
        (its_in, out), (self._in, its_out) = os.pipe(), os.pipe()
        # It reads from descriptor 3 and writes to 4, which may be in use in this process.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (its_in, its_out)]
        flags = [*FLAGS, HOSTS, f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        command = ["bash", "-c", f'exec "$@" 3<&{high[0]} 4>&{high[1]}', "bash", path, *flags]
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(command, pass_fds=high, stdout=self._log, stderr=self._log)
        for end in (its_in, its_out, *high):
            os.close(end)
        self._out, self._buffer, self._last_id = out, b"", 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(PATIENCE_S)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        for end in (self._in, self._out):
            os.close(end)
        self._log.close()

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The result of a command; events that arrive before it are stored."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        until_s = time.monotonic() + PATIENCE_S
        while True:
            answer = self._receive(until_s)
            if answer.get("id") == self._last_id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _receive(self, until_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until_s - time.monotonic()))
            assert ready, "Chromium does not answer"
            part = os.read(self._in, 1 << 20)
            assert part, "Chromium has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    @contextmanager
    def tab(self, url: str, size: tuple[int, int] = WIDE, *, scale: float = 1, dark: bool = False) -> Iterator["Tab"]:
        """A loaded page in a new profile. size: width and height; emulates a phone if narrower than 600."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.resize(*size, scale)
        tab.set_dark(dark)
        tab.open(url)
        try:
            yield tab
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)


class Tab:
    """One tab: input and displayed contents."""

    def __init__(self, chromium: Browser, session: str):
        self._chromium, self._session = chromium, session
        self._expected: list[str] = []
        self._scripts: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._chromium.call(method, self._session, **params)

    def run_first(self, script: str) -> None:
        """Run a script in each document that is opened from now on, before its own."""
        added = self.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        self._scripts.append(added["identifier"])

    def reset(self, url: str, size: tuple[int, int] = WIDE, *, dark: bool = False) -> None:
        """Opens a page as a new tab would, but for cached files, which makes it several times faster."""
        self.call("Page.navigate", url="about:blank")
        for script in self._scripts:
            self.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        self._scripts, self._expected = [], []
        parts = urlsplit(url)
        self.call("Storage.clearDataForOrigin", origin=f"{parts.scheme}://{parts.netloc}", storageTypes="all")
        self.resize(*size, 1)
        self.set_dark(dark)
        self._chromium.events.clear()
        self.open(url)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def resize(self, width: int, height: int, scale: float) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setTouchEmulationEnabled", enabled=width < 600)

    def set_dark(self, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def read(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def wait(self, expression: str, seconds: float = PATIENCE_S) -> Any:
        """The value of the expression once it is truthy."""
        until_s = time.monotonic() + seconds
        while not (value := self.read(expression)):
            assert time.monotonic() < until_s, f"timed out: {expression}\n{self.read('document.body.innerText')}"
            time.sleep(0.02)
        return value

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        code, text = KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": SHIFT * shift}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector: str) -> None:
        self.read(f"document.querySelector({json.dumps(selector)}).click()")

    def fill(self, selector: str, text: str) -> None:
        """Replace the contents of an input field."""
        self.read(f"{{ const field = document.querySelector({json.dumps(selector)}); field.focus(); field.select() }}")
        self.type(text)

    def attach(self, selector: str, *paths: Path) -> None:
        """Choose files in a file input."""
        field = self.call("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")["result"]
        self.call("DOM.setFileInputFiles", files=list(map(str, paths)), objectId=field["objectId"])

    def text(self, selector: str) -> str:
        return self.read(f"document.querySelector({json.dumps(selector)}).textContent")

    def screenshot(self) -> bytes:
        """A PNG of the screen."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def _events(self, method: str) -> list[dict[str, Any]]:
        self.read("0")  # receives the events so far
        events = self._chromium.events
        return [e["params"] for e in events if e["method"] == method and e.get("sessionId") == self._session]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """All network requests: `url`, `method`, `postData`."""
        return [event["request"] for event in self._events("Network.requestWillBeSent")]

    @property
    def problems(self) -> list[str]:
        """Exceptions, and errors and warnings in the console, including violations of the content security policy."""
        thrown = [str(event["exceptionDetails"]) for event in self._events("Runtime.exceptionThrown")]
        said = [str(e["args"]) for e in self._events("Runtime.consoleAPICalled") if e["type"] in ("error", "warning")]
        logged = [e["entry"]["text"] for e in self._events("Log.entryAdded") if e["entry"]["level"] != "verbose"]
        return [text for text in thrown + said + logged if not any(part in text for part in self._expected)]

    def expect(self, *parts: str) -> None:
        """Ignore problems that contain one of these texts."""
        self._expected += parts
