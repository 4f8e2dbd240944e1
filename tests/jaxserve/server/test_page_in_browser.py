"""The page as people use it, in headless Chromium: by keyboard, on phones, in the dark, and while things go wrong."""

import asyncio
import json
import re
import time
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from jaxserve.engine.snapshot import PAGE_STATES, snapshot
from jaxserve.server.live import Frames
from jaxserve.server.protocol.sampling import MAX_STOPS
from jaxserve.server.service import State
from tests.support.browser import PHONE, browser
from tests.support.fake_llm import Reciter, all_pages_are_back, fake_llm
from tests.support.server import NAME, running

SAID = 'naïve <b>bold</b> <img src="x" onerror="alert(1)"> 😀 '
CHAT = "/v1/chat/completions"
IS_DONE = "document.querySelector('.turn') && !document.querySelector('.busy')"


@pytest.fixture(scope="module")
def server():
    llm = fake_llm(Reciter(264, said=SAID))
    submit = llm.parts.runner.submit
    llm.parts.runner.submit = lambda plan: time.sleep(0.01) or submit(plan)
    with running(llm) as server:
        yield server


@pytest.fixture(scope="module")
def chromium():
    with browser() as chromium:
        yield chromium


@pytest.fixture
def open_page(chromium, server):
    """Opens the page in a tab; afterwards nothing has come from elsewhere, and the console has stayed silent."""
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


def until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def ask(tab, question):
    tab.fill("#prompt", question)
    tab.press("Enter")


def bodies(tab):
    """What the page has sent to be answered."""
    return [json.loads(request["postData"]) for request in tab.requests if request["url"].endswith(CHAT)]


def answers(tab):
    return tab.read("[...document.querySelectorAll('.answer')].map((one) => one.textContent)")


def test_an_answer_streams_in_and_is_what_the_server_says(page, server):
    page.fill("#prompt", "a")
    page.press("Enter", shift=True)
    page.type("b")
    assert bodies(page) == []
    page.press("Enter")
    lengths = [page.wait("document.querySelector('.answer')?.textContent.length")]
    assert page.read("document.querySelector('.answer').ariaBusy") == "true"
    while not page.read(IS_DONE):
        lengths.append(page.read("document.querySelector('.answer').textContent.length"))
    assert len(set(lengths)) > 3
    (body,) = bodies(page)
    assert body["messages"] == [{"role": "user", "content": "a\nb"}]
    whole = server.post(CHAT, {**body, "stream": False, "stream_options": None}).json()
    assert answers(page) == [whole["choices"][0]["message"]["content"]]
    assert page.text(".note").startswith(f"{whole['usage']['completion_tokens']} tokens · first after ")
    assert page.read("document.activeElement.id") == "prompt"
    assert page.read("document.querySelector('#prompt').value") == ""
    assert page.read("document.querySelector('.answer').ariaLive") == "polite"


def test_what_the_model_says_is_text_and_nothing_else(page):
    ask(page, "a")
    page.wait(IS_DONE)
    assert "<img" in answers(page)[0]
    assert page.read("document.querySelectorAll('.answer img, .answer b').length") == 0


@pytest.mark.parametrize("stop", ["Escape", "#halt"])
def test_stopping_keeps_what_was_said_and_frees_the_engine(page, server, stop):
    ask(page, "a")
    page.wait("document.querySelector('.answer').textContent.length > 3")
    page.press(stop) if stop == "Escape" else page.click(stop)
    page.wait(IS_DONE)
    assert page.text(".note") == "stopped"
    said = answers(page)[0]
    assert 3 < len(said) < 60
    until(lambda: all_pages_are_back(server.llm))
    assert answers(page) == [said]


def test_the_focus_stays_with_what_can_be_done(page):
    focused = "document.activeElement.id"
    ask(page, "a")
    page.wait("!document.querySelector('#halt').hidden")
    page.read("document.querySelector('#halt').focus()")
    page.press("Enter")
    page.wait(IS_DONE)
    assert page.read(focused) == "prompt"
    page.read("document.querySelector('.actions button:last-child').focus()")
    page.press("Enter")
    page.wait("!!document.querySelector('.busy')")
    assert page.read(focused) == "halt"
    page.wait(IS_DONE)
    assert page.read(focused) == "prompt"


def test_a_reload_keeps_what_has_come_of_an_answer(page, server):
    ask(page, "a")
    page.wait("document.querySelector('.answer').textContent.length > 3")
    page.open(f"{server.url}/")
    page.wait(IS_DONE)
    assert page.text(".note") == "stopped"
    assert len(answers(page)[0]) > 3
    assert not page.read("document.querySelector('.note').classList.contains('warn')")


def test_an_answer_that_is_cut_off_says_so(open_page, server):
    page = open_page()
    ask(page, "a")
    page.wait("document.querySelector('.answer').textContent.length > 3")
    server.cut()
    page.wait(IS_DONE)
    assert page.text(".note") == "The answer broke off: the connection was lost."
    assert len(answers(page)[0]) > 3
    page.expect("ERR_")


# What takes twenty seconds takes half a one.
HASTE = "{ const real = setTimeout; window.setTimeout = (call, ms) => real(call, ms >= 20_000 ? 500 : ms) }"


def test_after_a_long_silence_the_page_connects_anew_and_asks_for_the_model(open_page, server, monkeypatch):
    page = open_page()
    page.call("Page.addScriptToEvaluateOnNewDocument", source=HASTE)
    page.open(f"{server.url}/")
    page.wait("document.querySelector('#state').textContent === 'idle'")
    ask(page, "a")
    page.wait(IS_DONE)
    with monkeypatch.context() as patch:
        patch.setattr(Frames, "next", lambda self: asyncio.sleep(3600))
        page.wait("document.querySelector('#state').textContent === 'nothing comes: connecting again'")
    with monkeypatch.context() as patch:
        patch.setattr(server.service, "names", ("other",))
        page.wait("document.querySelector('#state').textContent === 'idle'")
        page.wait("document.querySelector('#model').textContent === 'other'")
    assert page.text(".turn h2:nth-of-type(2)") == NAME


def test_settings_and_history_are_sent_and_outlive_a_reload(page, server):
    page.click("summary")
    given = {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "max_tokens": 3, "seed": 7}
    given |= {"presence_penalty": -0.5, "frequency_penalty": 1, "repetition_penalty": 1.1}
    for name, value in given.items():
        page.fill(f"[name={name}]", str(value))
    page.fill("[name=system]", "s")
    page.fill("[name=stop]", "x\\ny\nz")
    assert page.text("#changed").startswith("system prompt, temperature 0.5, top p 0.9,")
    ask(page, "a")
    page.wait(IS_DONE)
    first = answers(page)[0]
    page.open(f"{server.url}/")
    ask(page, "b")
    page.wait(f"document.querySelectorAll('.turn').length === 2 && {IS_DONE}")
    assert page.text(".turn:last-child .note").endswith("ended at max tokens")
    options = {**given, "stop": ["x\ny", "z"], "stream": True, "stream_options": {"include_usage": True}}
    system, asked = {"role": "system", "content": "s"}, {"role": "user", "content": "a"}
    said, again = {"role": "assistant", "content": first}, {"role": "user", "content": "b"}
    assert bodies(page) == [
        {**options, "messages": [system, asked]},
        {**options, "messages": [system, asked, said, again]},
    ]
    page.click("#clear")
    assert answers(page) == []
    page.click("#reset")
    ask(page, "c")
    page.wait(IS_DONE)
    assert bodies(page)[-1].keys() == {"messages", "stream", "stream_options"}


def test_settings_out_of_range_are_shown_and_not_sent(page):
    page.click("summary")
    for name, value in (
        ("temperature", "2.5"),
        ("top_p", "0"),
        ("top_k", "1.5"),
        ("seed", "-"),
        ("stop", "\n".join(["x"] * (MAX_STOPS + 1))),
    ):
        page.fill(f"[name={name}]", value)
        ask(page, "a")
        assert page.read("document.activeElement.name") == name
        assert page.read("document.activeElement.ariaInvalid") == "true"
        assert re.search("must be|at most", page.text("#wrong"))
        page.read(f"document.querySelector('[name={name}]').value = ''")
    assert bodies(page) == []
    page.fill("[name=stop]", "\n".join(["x"] * MAX_STOPS))  # as many as the server takes
    ask(page, "a")
    page.wait(IS_DONE)
    assert len(bodies(page)[-1]["stop"]) == MAX_STOPS


def test_refusals_are_explained_and_may_be_tried_again(open_page, server):
    page = open_page()
    server.service.state = State.DRAINING
    try:
        ask(page, "a")
        page.wait(IS_DONE)
        assert page.text(".note") == "Not now: the server is draining. Try again in 30 s."
    finally:
        server.service.state = State.READY
    page.click(".actions button:last-child")
    page.wait("document.querySelector('.answer').textContent && " + IS_DONE)
    ask(page, "a" * 200)
    page.wait("document.querySelectorAll('.turn').length === 2 && " + IS_DONE)
    assert page.text(".turn:last-child .note").startswith("The conversation has grown too long for the model.")
    page.expect("responded with a status of 503", "responded with a status of 400")  # as Chromium itself remarks


def test_the_map_and_its_legend_are_what_the_pool_is(open_page, server):
    pool = server.llm.parts.engine.scheduler.state.pool

    def take():
        ids = pool.allocate(30)
        pool.keep(ids[:10])
        pool.release(ids[:10])  # cached
        pool.retain(ids[20:])  # shared
        return ids

    async def call(function):
        return await asyncio.wrap_future(server.service.llm._driver.call(function))

    ids = asyncio.run(call(take))
    try:
        page = open_page()
        page.wait("document.querySelector('#cached').textContent === '10'")
        taken = snapshot(server.llm.parts.engine)
        counts = taken.count_pages()
        for state in PAGE_STATES[:4]:
            assert page.text(f"#{state}") == str(counts[state]) == page.text(f"#{state}")
        page.read("new Promise(requestAnimationFrame)")
        colours = [page.read(f"getComputedStyle(map).getPropertyValue('--{state}')") for state in PAGE_STATES[:4]]
        assert drawn_squares(page, len(taken.pages) - 1) == [colours[state] for state in taken.pages[1:].tolist()]
    finally:

        def give_back():
            pool.drop(ids[:10])
            pool.release(ids[10:])
            pool.release(ids[20:])

        asyncio.run(call(give_back))


def drawn_squares(page, count):
    """The colour in the middle of each square of the map, the squares found by where free ground separates them."""
    return page.read(
        f"""(() => {{
          const {{ width, height }} = map, pixels = map.getContext("2d").getImageData(0, 0, width, height).data;
          const isDrawn = (x, y) => pixels[4 * (y * width + x) + 3] > 0;
          const middles = (length, is) => {{
            const found = [];
            for (let i = 0, start = -1; i <= length; i++) {{
              if (i < length && is(i)) start = start < 0 ? i : start;
              else if (start >= 0) [found[found.length], start] = [(start + i - 1) >> 1, -1];
            }}
            return found;
          }};
          const xs = middles(width, (x) => isDrawn(x, 1)), ys = middles(height, (y) => isDrawn(1, y));
          const at = (x, y) => [...pixels.slice(4 * (y * width + x), 4 * (y * width + x) + 3)];
          const hex = (parts) => "#" + parts.map((part) => part.toString(16).padStart(2, "0")).join("");
          return ys.flatMap((y) => xs.map((x) => hex(at(x, y)))).slice(0, {count});
        }})()"""
    )


def test_numbers_follow_the_engine(page):
    assert page.wait("document.querySelector('#running').textContent === '0'")
    ask(page, "a")
    page.wait("document.querySelector('#running').textContent === '1'")
    page.wait("Number(document.querySelector('#tokens_per_s').textContent) > 0")
    page.wait("document.querySelector('#ttft_ms').textContent.endsWith('ms')")
    page.wait("document.querySelector('#state').textContent === 'idle'")
    assert page.text("#decode_rows") == "1"
    inked = "(c) => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0)"
    assert page.read(f"[...document.querySelectorAll('canvas')].every({inked})")


def test_a_phone_shows_one_view_at_a_time_and_never_scrolls_sideways(open_page):
    page = open_page(PHONE)
    is_narrow = "document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll('*')].every("
    is_narrow += "(one) => one.closest('.unseen, canvas, title') || one.getBoundingClientRect().right <= innerWidth)"
    assert not [request for request in page.requests if request["url"].endswith("/live")]
    ask(page, "w" * 30)
    page.wait(IS_DONE)
    page.click("summary")
    assert page.read(is_narrow)
    page.click("nav a[href='#engine']")
    page.wait("document.querySelector('#free').textContent === '199'")
    assert page.read("document.querySelector('#chat').checkVisibility()") is False
    assert page.read(is_narrow)
    page.click("nav a[href='#chat']")
    assert page.read("document.querySelector('#engine').checkVisibility()") is False


def luminance(colour):
    """Of #rrggbb, by the W3C's formula for contrast."""
    parts = [int(part, 16) / 255 for part in re.findall("[0-9a-f]{2}", colour)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_colours_differ_without_hue_and_text_can_be_read_in_the_light_and_in_the_dark(page):
    grounds = set()
    for dark in (False, True):
        page.set_dark(dark)
        grounds.add(page.read("getComputedStyle(document.documentElement).backgroundColor"))
        names = ("paper", "ink", "quiet", "warn", "accent", *PAGE_STATES[:4], "padding", "prompt", "decode")
        style = "getComputedStyle(document.body)"
        found = page.read(f"{list(names)}.map((name) => {style}.getPropertyValue(`--${{name}}`))")
        colours = dict(zip(names, found, strict=True))
        for scale in (PAGE_STATES[:4], ("padding", "prompt", "decode")):
            for one, other in pairwise(colours[name] for name in scale):
                assert contrast(one, other) > 1.35
                assert (luminance(one) < luminance(other)) == dark  # the busier the further from the ground
        assert contrast(colours["ink"], colours["paper"]) > 7
        assert min(contrast(colours[name], colours["paper"]) for name in ("quiet", "warn", "accent")) > 4.5
    assert len(grounds) == 2


def test_every_control_has_a_name_and_shows_the_focus(page):
    page.click("summary")
    page.read("document.activeElement.blur()")
    seen = []
    while True:
        page.press("Tab")
        at = page.read(
            """(() => { const at = document.activeElement, style = getComputedStyle(at);
              return at !== document.body && [at.id || at.name || at.textContent.trim(),
                (at.labels?.[0] ?? at).textContent.trim() || at.ariaLabel, style.outlineStyle] })()"""
        )
        if not at or at in seen:  # once around
            break
        seen.append(at)
    assert {"system", "temperature", "top_p", "seed", "stop", "reset", "prompt", "send"} <= {
        name for name, _, _ in seen
    }
    assert all(label for _, label, _ in seen)
    assert not [name for name, _, outline in seen if outline != "solid"]


TEXTS = {
    "One\n```py\nx = 1\n\ny\n```\ntwo ``` three\n``\n```\nlast": [
        ["p", "One\n"],
        ["pre", "x = 1\n\ny\n"],
        ["p", "two ``` three\n``\n"],
        ["pre", "last"],
    ],
    "Use:\n```print(1)```\nso": [["p", "Use:\n```print(1)```\nso"]],
    "```ls -la```": [["p", "```ls -la```"]],
    "````md\n```py x\n`` `\n````  \n``": [["pre", "```py x\n`` `\n"], ["p", "``"]],
    "a\n```\nb\n```": [["p", "a\n"], ["pre", "b\n"]],
}


@pytest.mark.parametrize("text", TEXTS)
def test_code_is_set_apart_however_the_text_is_cut(page, text):
    script = page.read("document.querySelector('script').src.replace('app.js', 'turn.js')")
    cuts = [[text], list(text), re.findall(r"(?s).{1,3}", text), re.findall(r"(?s).{1,7}", text)]
    written = page.read(
        f"""import({json.dumps(script)}).then(({{ Writer }}) => {json.dumps(cuts)}.map((pieces) => {{
          const into = document.createElement("div"), writer = new Writer(into);
          for (const piece of pieces) writer.write(piece);
          writer.end();
          return [...into.children].map((one) => [one.localName, one.textContent]);
        }}))"""
    )
    assert written == [TEXTS[text]] * len(cuts)


def test_whoever_logs_in_with_the_key_can_use_all_of_it(chromium):
    with (
        running(fake_llm(Reciter(264, said=SAID)), api_key="secret") as server,
        chromium.tab(f"{server.url}/".replace("//", "//anyone:secret@", 1)) as page,
    ):
        page.wait(f"document.querySelector('#model').textContent === '{NAME}'")
        ask(page, "a")
        page.wait(IS_DONE)
        assert page.text(".note").endswith("the context is full")
        page.wait("document.querySelector('#state').textContent === 'idle'")
        assert page.problems == []


def test_a_page_opened_before_the_model_is_there_waits_for_it(chromium, server):
    llm, server.service._llm = server.service._llm, None
    try:
        with chromium.tab(f"{server.url}/") as page:
            page.wait("document.querySelector('#model').textContent.includes('the model is being loaded')")
            page.wait("document.querySelector('#state').textContent.includes('the model is being loaded')")
            server.service._llm = llm
            page.wait(f"document.querySelector('#model').textContent === '{NAME}'")
            page.wait("document.querySelector('#state').textContent === 'idle'")
    finally:
        server.service._llm = llm
