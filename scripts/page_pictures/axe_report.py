"""Prints what axe-core finds on the web page in each of its states, as the table of docs/web_page.md.

python -m scripts.page_pictures.axe_report
"""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.fakes.fake_llm import fake_llm
from tests.support.processes.browser import browser
from tests.support.serving.http_server import NAME, running
from tests.support.serving.page_states import SIZES, page_states, run_axe


def main() -> None:
    found = defaultdict(lambda: [0, 0, 0])  # by state: rules passed at least, violations, nodes to be looked at
    with running(fake_llm()) as server, browser() as chromium:
        for size in SIZES.values():
            for dark in (False, True):
                with chromium.tab(f"{server.url}/", size, dark=dark) as page, TemporaryDirectory() as folder:
                    page.wait(f"document.querySelector('#model').textContent === '{NAME}'")
                    for state in page_states(page, Path(folder)):
                        axe = run_axe(page)
                        passed, violated, unsure = found[state]
                        found[state] = [
                            min(passed or len(axe["passes"]), len(axe["passes"])),
                            violated + sum(len(rule["nodes"]) for rule in axe["violations"]),
                            unsure + sum(len(rule["nodes"]) for rule in axe["incomplete"]),
                        ]
    print(f"| state, in {2 * len(SIZES)} looks each | rules that pass, at least | violations | left to a person |")
    print("| --- | --- | --- | --- |")
    for state, numbers in found.items():
        print(f"| {state} | {' | '.join(map(str, numbers))} |")


if __name__ == "__main__":
    main()
