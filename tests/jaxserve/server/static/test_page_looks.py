"""The page on phones, in dark mode, and by keyboard; with an API key, and before the model is loaded."""

import re
from itertools import pairwise

from jaxserve.engine.serving.snapshot import PAGE_STATES
from tests.support.fakes.fake_llm import Reciter, fake_llm
from tests.support.processes.browser import PHONE
from tests.support.serving.http_server import NAME, running
from tests.support.serving.web_page import IS_DONE, SAID, ask, ask_and_wait, script_answers


def test_a_phone_shows_one_view_at_a_time_and_never_scrolls_sideways(open_page):
    page = open_page(PHONE)
    is_narrow = "document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll('*')].every("
    is_narrow += "(one) => one.closest('.unseen, canvas, title') || one.getBoundingClientRect().right <= innerWidth)"
    assert not [request for request in page.requests if request["url"].endswith("/live")]
    ask(page, "w" * 30)
    page.wait(IS_DONE)
    page.click("summary")
    assert page.read(is_narrow)
    page.click("#conversation-list button")
    assert page.read("document.activeElement.id") == "turns"  # a keyboard would cover the messages
    page.click("nav a[href='#engine']")
    page.wait("document.querySelector('#free').textContent === '199'")
    assert page.read("document.querySelector('#chat').checkVisibility()") is False
    assert page.read(is_narrow)
    page.click("nav a[href='#chat']")
    assert page.read("document.querySelector('#engine').checkVisibility()") is False


def luminance(color):
    """The relative luminance of #rrggbb, by the W3C's formula."""
    parts = [int(part, 16) / 255 for part in re.findall("[0-9a-f]{2}", color)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_colors_differ_without_hue_and_text_is_legible_in_light_and_dark_mode(page):
    grounds = set()
    for dark in (False, True):
        page.set_dark(dark)
        page.wait(f"document.documentElement.dataset.theme === '{'dark' if dark else 'light'}'")
        grounds.add(page.read("getComputedStyle(document.documentElement).backgroundColor"))
        names = ("paper", "ink", "quiet", "warn", "accent", *PAGE_STATES[:4], "padding", "prompt", "decode")
        style = "getComputedStyle(document.body)"
        found = page.read(f"{list(names)}.map((name) => {style}.getPropertyValue(`--${{name}}`))")
        colors = dict(zip(names, found, strict=True))
        for scale in (PAGE_STATES[:4], ("padding", "prompt", "decode")):
            for one, other in pairwise(colors[name] for name in scale):
                assert contrast(one, other) > 1.35
                assert (luminance(one) < luminance(other)) == dark  # busier states have more contrast to the background
        assert contrast(colors["ink"], colors["paper"]) > 7
        assert min(contrast(colors[name], colors["paper"]) for name in ("quiet", "warn", "accent")) > 4.5
    assert len(grounds) == 2


def test_the_theme_is_chosen_and_kept(open_page, server):
    page = open_page(dark=True)
    theme, ground = (
        "document.documentElement.dataset.theme",
        "getComputedStyle(document.body.parentElement).backgroundColor",
    )
    assert page.read(theme) == "dark"
    dark = page.read(ground)
    choose = (
        "{ const theme = document.querySelector('#theme'); theme.value = %r; theme.dispatchEvent(new Event('change')) }"
    )
    page.read(choose % "light")
    assert page.read(ground) != dark
    page.open(f"{server.url}/")
    assert page.read(theme) == page.read("document.querySelector('#theme').value") == "light"
    page.read(choose % "system")
    assert page.read(ground) == dark
    page.set_dark(False)
    page.wait(f"{theme} === 'light'")


def test_the_text_is_in_the_middle_and_a_user_s_of_normal_weight(open_page):
    page = open_page((1920, 1000))
    script_answers(page, "```\n" + "x" * 400 + "\n```\n\n" + "word " * 200)
    ask_and_wait(page, "a")
    left, right, outer_left, outer_right = page.read(
        """["#turns .answer", "#turns"].flatMap((selector) => {
          const { left, right } = document.querySelector(selector).getBoundingClientRect();
          return [left, right];
        })"""
    )
    assert abs((left + right) - (outer_left + outer_right)) < 20  # but for the scroll bar
    assert 500 < right - left < 750
    weight = "getComputedStyle(document.querySelector('.question')).fontWeight"
    assert page.read(weight) == "400"
    assert page.read(
        "(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)(document.querySelector('.code pre'))"
    )
    bar = "(({ offsetHeight, clientHeight }) => offsetHeight - clientHeight)(document.querySelector('.code pre'))"
    assert page.read(bar) >= 8  # of the scroll bar, which is there before one scrolls


def test_every_setting_has_help_that_is_read_with_it(page):
    page.click("#settings summary")
    helped = page.read(
        """[...document.querySelectorAll("#settings input, #settings textarea")].map((field) =>
          [field.labels[0].textContent, document.getElementById(field.getAttribute("aria-describedby")).innerText])"""
    )
    assert len(helped) == 11
    assert all(len(text) > 30 for _, text in helped)
    assert len({text for _, text in helped}) == len(helped)


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
        if at in seen:  # once around
            break
        if at:  # between the last one and the first, the browser's own controls have the focus
            seen.append(at)
    assert {"system", "temperature", "top_p", "seed", "stop", "reset", "prompt", "send"} <= {
        name for name, _, _ in seen
    }
    assert all(label for _, label, _ in seen)
    assert not [name for name, _, outline in seen if outline != "solid"]


def test_logging_in_with_the_key_gives_access_to_everything(chromium):
    with (
        running(fake_llm(Reciter(264, said=SAID)), api_key="secret") as server,
        chromium.tab(f"{server.url}/".replace("//", "//anyone:secret@", 1)) as page,
    ):
        page.wait(f"document.querySelector('#model').textContent === '{NAME}'")
        ask(page, "a")
        page.wait(IS_DONE)
        assert page.text(".assistant .note").endswith("the context is full")
        page.wait("document.querySelector('#state').textContent === 'idle'")
        assert page.problems == []


def test_a_page_opened_before_the_model_is_loaded_waits_for_it(chromium, server):
    engine, server.state._engine = server.state._engine, None
    try:
        with chromium.tab(f"{server.url}/") as page:
            page.wait("document.querySelector('#model').textContent.includes('the model is being loaded')")
            page.wait("document.querySelector('#state').textContent.includes('the model is being loaded')")
            server.state._engine = engine
            page.wait(f"document.querySelector('#model').textContent === '{NAME}'")
            page.wait("document.querySelector('#state').textContent === 'idle'")
    finally:
        server.state._engine = engine
