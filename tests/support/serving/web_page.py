"""Actions on the web page, and reading its contents."""

import json

SAID = 'naïve <b>bold</b> <img src="x" onerror="alert(1)"> 😀 '
CHAT = "/v1/chat/completions"
IS_DONE = "document.querySelector('.turn') && !document.querySelector('.busy')"
# Answers chat requests with the texts of `window.answers` in turn, in pieces of a few characters.
SCRIPTED = """
{
  const real = window.fetch;
  window.bodies = [];
  window.fetch = (url, options) => {
    if (!String(url).endsWith("/chat/completions")) return real(url, options);
    window.bodies.push(JSON.parse(options.body));
    const said = window.answers.shift();
    const { status, ...error } = said;
    if (status) return Promise.resolve(Response.json({ error }, { status }));
    const deltas = said.deltas ?? said.match(/[^]{1,5}/g).map((content) => ({ content }));
    const chunks = deltas.map((delta) => ({ choices: [{ delta }], usage: null }));
    const lines = [...chunks.map((chunk) => JSON.stringify(chunk)), "[DONE]"].map((data) => `data: ${data}\n\n`);
    return Promise.resolve(new Response(lines.join("")));
  };
}
"""


def ask(tab, question):
    tab.fill("#prompt", question)
    tab.press("Enter")


def bodies(tab):
    """The bodies of the page's chat requests."""
    return [json.loads(request["postData"]) for request in tab.requests if request["url"].endswith(CHAT)]


def script_answers(tab, *answers):
    """Let the page receive these answers instead of the server's: texts, {deltas} or {status, message}."""
    tab.read(f"window.answers = {json.dumps(answers)}; {'' if tab.read('!!window.bodies') else SCRIPTED}; 0")


def ask_and_wait(tab, question):
    """Ask and wait until the answer is complete."""
    turns = tab.read("document.querySelectorAll('.turn').length")
    ask(tab, question)
    tab.wait(f"document.querySelectorAll('.turn').length === {turns + 2} && {IS_DONE}")


def press_button(tab, text, turn=-1):
    """Click the button with this text, of the last message or of another one."""
    tab.read(
        f"""[...[...document.querySelectorAll('.turn')].at({turn}).querySelectorAll('button')]
          .find((one) => one.textContent === {json.dumps(text)}).click()"""
    )


def shown(tab):
    """The texts of the messages on the page."""
    return tab.read("[...document.querySelectorAll('.turn .said')].map((one) => one.innerText.trim())")


def module(tab, path):
    """The address of a module of the page."""
    return tab.read("document.querySelector('script[type=module]').src").replace("app.js", path)


def answers(tab):
    return tab.read("[...document.querySelectorAll('.answer')].map((one) => one.textContent)")
