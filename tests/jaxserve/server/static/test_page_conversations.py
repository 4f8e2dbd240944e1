"""Conversations on the page: titles, search, export and import, and a browser that is full or stores nothing."""

import json

import pytest

from tests.support.serving.web_page import ask_and_wait, script_answers, shown

TITLES = "[...document.querySelectorAll('#conversation-list button')].map((one) => one.textContent)"
KEEP_EXPORT = "URL.createObjectURL = (blob) => { window.exported = blob; return '#chat' }; 0"


@pytest.fixture
def two(page):
    """Two conversations, of which the second is shown."""
    script_answers(page, "Apples **grow**.", "They boil.")
    ask_and_wait(page, "What do trees do?\nBriefly.")
    page.click("#new")
    ask_and_wait(page, "What do kettles do?")
    return page


def test_titles_are_first_lines_until_named(two):
    assert two.read(TITLES) == ["What do kettles do?", "What do trees do?"]
    two.fill("#title", "Kitchen")
    two.press("Enter")
    assert two.read(TITLES) == ["Kitchen", "What do trees do?"]
    two.read("document.querySelectorAll('#conversation-list button')[1].click()")
    assert two.read("document.querySelector('#title').value") == "What do trees do?"
    assert shown(two) == ["What do trees do?\nBriefly.", "Apples grow."]
    assert two.text("[aria-current]") == "What do trees do?"


def test_a_search_finds_words_of_titles_and_messages(two):
    for words, found in {"apples": 1, "GROW trees": 1, "what": 2, "apples kettles": 0}.items():
        two.fill("#search", words)
        assert len(two.read(TITLES)) == found, words
    assert two.text("#none-found") == "No conversation has these words."


def test_keys_search_and_start_a_conversation(two):
    key = "dispatchEvent(new KeyboardEvent('keydown', { key: '%s', ctrlKey: true, shiftKey: %s, cancelable: true }))"
    assert two.read(key % ("k", "false")) is False  # the browser's own action is prevented
    assert two.read("document.activeElement.id") == "search"
    assert two.read(key % ("K", "true")) is True
    assert two.read(key % ("O", "true")) is False
    assert shown(two) == []
    assert two.read("document.activeElement.id") == "prompt"


def test_a_reload_shows_the_same_conversation_and_a_new_tab_a_new_one(two, server):
    two.read("document.querySelectorAll('#conversation-list button')[1].click()")
    two.open(f"{server.url}/")
    two.wait("!!document.querySelector('.turn')")
    assert shown(two)[-1] == "Apples grow."
    two.read("sessionStorage.removeItem('jaxserve.current')")  # as in a new tab
    two.open(f"{server.url}/")
    two.wait("!!document.querySelector('#conversation-list button')")
    assert shown(two) == []


def test_exported_conversations_are_imported_as_new_ones(two, tmp_path):
    two.read(KEEP_EXPORT)
    two.click("#export-all")
    text = two.read("window.exported.text()")
    exported = json.loads(text)
    assert (exported["format"], exported["version"]) == ("jaxserve conversations", 1)
    assert [one["messages"][-1]["content"] for one in exported["conversations"]] == ["They boil.", "Apples **grow**."]
    two.click("#delete-all")
    assert two.read(TITLES) == []
    assert two.text("#notice") == "All conversations are deleted. Undo"
    (tmp_path / "all.json").write_text(text)
    two.attach("#import-file", tmp_path / "all.json")
    two.wait("document.querySelector('#notice').textContent === '2 imported.'")
    two.attach("#import-file", tmp_path / "all.json")
    two.wait("document.querySelectorAll('#conversation-list li').length === 4")
    two.read("document.querySelector('#conversation-list button').click()")
    assert shown(two)[-1] in ("They boil.", "Apples grow.")


BROKEN = {
    "x.json is not JSON.": "{",
    "x.json is not a file of conversations exported here.": '{"format": "other", "conversations": []}',
    "x.json has version 2; this page reads 1.": json.dumps(
        {"format": "jaxserve conversations", "version": 2, "conversations": []}
    ),
}
DAMAGED = [
    None,
    {},
    {"id": "a", "name": "", "changed": 0, "leaf": 1, "messages": []},
    {
        "id": "a",
        "name": "",
        "changed": 0,
        "leaf": 1,
        "messages": [{"id": 1, "parent": 1, "role": "user", "content": ""}],
    },
    {
        "id": "a",
        "name": "",
        "changed": 0,
        "leaf": 1,
        "messages": [{"id": 1, "parent": None, "role": "x", "content": ""}],
    },
    {
        "id": "a",
        "name": "",
        "changed": 0,
        "leaf": 1,
        "messages": [{"id": 1, "parent": None, "role": "user", "content": 1}],
    },
]


def test_other_files_are_refused_with_a_reason(two, tmp_path):
    damaged = [
        json.dumps({"format": "jaxserve conversations", "version": 1, "conversations": [one]}) for one in DAMAGED
    ]
    texts = [*BROKEN.items(), *(("Conversation 1 of x.json is damaged: nothing was imported.", one) for one in damaged)]
    for message, text in texts:
        (tmp_path / "x.json").write_text(text)
        two.read("document.querySelector('#problem').textContent = ''")
        two.attach("#import-file", tmp_path / "x.json")
        two.wait("document.querySelector('#problem').textContent")
        assert two.text("#problem") == message
    assert len(two.read(TITLES)) == 2


def test_a_deleted_conversation_comes_back(two):
    two.click("#delete")
    assert two.read(TITLES) == ["What do trees do?"]
    assert shown(two) == []
    two.click("#notice button")
    assert shown(two) == ["What do kettles do?", "They boil."]
    assert two.read(TITLES) == ["What do kettles do?", "What do trees do?"]


def test_full_storage_is_told_and_loses_nothing(page, server):
    script_answers(page, "x" * 100)
    ask_and_wait(page, "q1")
    page.run_first("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') }")
    page.open(f"{server.url}/")
    assert page.read(TITLES) == ["q1"]
    script_answers(page, "y" * 100)
    ask_and_wait(page, "q2")
    assert page.text("#notice").startswith("This browser’s storage for conversations is full")
    page.click("#new")
    page.click("#conversation-list button")
    assert shown(page) == ["q1", "x" * 100, "q2", "y" * 100]


def test_conversations_have_a_bound_together(page):
    page.read(
        "localStorage.setItem('jaxserve.conversation.a', JSON.stringify({ id: 'a', name: '', changed: 1, leaf: 1,"
        " messages: [{ id: 1, parent: null, role: 'user', content: 'x'.repeat(3_999_000) }] }))"
    )
    page.open(page.read("location.href"))
    page.wait("document.querySelector('#conversation-list button')?.textContent.startsWith('xxx')")
    script_answers(page, "y" * 2000)
    ask_and_wait(page, "q1")
    assert page.text("#notice").startswith("This browser’s storage for conversations is full")
    page.read("document.querySelectorAll('#conversation-list button')[1].click()")
    page.click("#delete")
    page.read("document.querySelector('#conversation-list button').click()")
    script_answers(page, "two")
    ask_and_wait(page, "q2")
    assert page.text("#notice") == ""


def test_a_browser_that_stores_nothing_still_talks(page, server):
    page.run_first(
        (
            "for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name,"
            " { get: () => { throw new DOMException('denied', 'SecurityError') } })"
        ),
    )
    page.open(f"{server.url}/")
    script_answers(page, "one")
    ask_and_wait(page, "q1")
    assert shown(page) == ["q1", "one"]
    assert page.text("#notice") == "This browser stores nothing for this page: conversations last until it is closed."


def test_other_data_in_the_storage_is_left_alone(page, server):
    page.read("localStorage.setItem('jaxserve.conversation.x', '[1'); localStorage.setItem('jaxserve.settings', '3')")
    page.open(f"{server.url}/")
    page.wait("document.querySelector('#none-found').textContent === 'None yet.'")
    assert page.read("localStorage.getItem('jaxserve.conversation.x')") == "[1"
