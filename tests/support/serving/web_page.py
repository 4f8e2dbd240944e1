"""Actions on the web page, and reading its contents."""

import json

SAID = 'naïve <b>bold</b> <img src="x" onerror="alert(1)"> 😀 '
CHAT = "/v1/chat/completions"
IS_DONE = "document.querySelector('.turn') && !document.querySelector('.busy')"


def ask(tab, question):
    tab.fill("#prompt", question)
    tab.press("Enter")


def bodies(tab):
    """The bodies of the page's chat requests."""
    return [json.loads(request["postData"]) for request in tab.requests if request["url"].endswith(CHAT)]


def answers(tab):
    return tab.read("[...document.querySelectorAll('.answer')].map((one) => one.textContent)")
