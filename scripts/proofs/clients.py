"""Eight outside clients, each in its own environment, work with a served SmolLM2 and read what direct requests return.

The clients are those of scripts/clients: each is installed with pinned versions on first use, and its script compares
what the client returns with direct requests at temperature 0 or with the same seed. The server computes in float32 and
independently of the batch, so these are equal. schemathesis sends 500 cases of each operation of /openapi.json to a
server of its own. Limits: no failed check, no answer with status 5xx, and a time per client. A client that cannot be
installed is listed as not run. Controls: a relay falsifies answers, and the clients' checks must fail.

Results that hold are stored in .cache/proofs: an interrupted run continues as long as the sources are unchanged. A
client named on the command line always runs.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.proofs.helpers.client_relay import FALSIFIED, Fault, other_texts, relay, teapot, without_created
from scripts.proofs.helpers.client_runs import Client, ClientRun, run
from scripts.proofs.helpers.served_model import served
from scripts.proofs.helpers.serving_row import MODEL, SIZES
from scripts.prove import digest_of

ROOT = Path(__file__).parents[2]
KEY = "a-key-for-clients"
EXACT = ("--dtype", "float32", "--batch-invariant", "--max-model-len", "1024", *SIZES)
SHORT = ("--max-model-len", "128", "--max-num-seqs", "16", "--max-num-batched-tokens", "128", "--buckets", "16 128x16")
CLIENTS = [
    Client("openai", "openai_python", EXACT),
    Client("langchain-openai", "langchain", EXACT, limit_s=1200),
    Client("litellm", "litellm_python", EXACT),
    Client("llm", "llm_command", EXACT),
    Client("lm-eval", "lm_eval_command", EXACT),
    Client("inspect-ai", "inspect_python", EXACT),
    Client("promptfoo", "promptfoo_command", EXACT),
    Client("schemathesis", "schemathesis_command", SHORT, limit_s=1800),
]
MAX_SHOWN = 50  # failures
NAMES = [client.name for client in CLIENTS]
MAX_SHOWN = 50  # failures


@dataclass(frozen=True)
class Control:
    """words: a part of the failure that the falsified answers must cause in each of the clients."""

    what: str
    fault: Fault
    clients: list[str]
    words: str


CONTROLS = [
    Control("texts and log-probabilities altered", other_texts, NAMES[:-1], FALSIFIED),
    Control("`created` left out", without_created, ["openai"], "APIResponseValidationError"),
    Control("`created` left out", without_created, ["schemathesis"], "response_schema_conformance"),
    Control("status 418 instead of 200", teapot, ["schemathesis"], "status 418"),
]


@dataclass(frozen=True)
class Result:
    """num_noticed: by control, the failures with its words."""

    run: ClientRun
    num_noticed: dict[str, int]

    @property
    def faults(self) -> list[str]:
        lost = [f"does not notice: {what}" for what, num in self.num_noticed.items() if not num]
        return [f"{self.run.name}: {fault}" for fault in (*self.run.failures, *lost)]


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove clients")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"{', '.join(NAMES)} (default: all not stored)")
    names = parser.parse_args(argv).clients
    if unknown := set(names) - set(NAMES):
        raise SystemExit(f"unknown client {', '.join(sorted(unknown))}: must be one of {', '.join(NAMES)}")
    results = {} if names else {client.name: found for client in CLIENTS if (found := stored(client))}
    for options in (EXACT, SHORT):
        of_options = [client for client in CLIENTS if client.options == options]
        if clients := [
            client for client in of_options if client.name in (names or NAMES) and client.name not in results
        ]:
            with served(MODEL, *options, key=KEY) as url:
                results |= {client.name: tried(client, url) for client in clients}
    ordered = [results[name] for name in NAMES if name in results]
    runs = [result.run for result in ordered]
    lines = [*table(runs), "", *table_of_checks(runs), "", *table_of_controls(ordered), ""]
    if faults := [fault for result in ordered for fault in result.faults]:
        raise SystemExit("\n".join([*lines, *faults[:MAX_SHOWN], f"{len(faults)} failures"]))
    if len(runs) < len(NAMES):
        raise SystemExit("\n".join([*lines, "All checks hold; a report needs all clients."]))
    not_run = ", ".join(each.name for each in runs if each.not_run) or "none"
    return "\n".join([*lines, f"All checks hold, and each control is noticed. Clients that were not run: {not_run}."])


def tried(client: Client, url: str) -> Result:
    place = place_of(client)  # of the sources as they are before the run
    found, num_noticed = run(client, url, KEY), dict[str, int]()
    print(*table([found])[2:], *found.failures[:MAX_SHOWN], sep="\n", file=sys.stderr)
    for control in CONTROLS:
        if client.name in control.clients and not found.not_run:
            with relay(url, control.fault) as through:
                failures = run(client, url, KEY, through).failures
            num_noticed[control.what] = sum(control.words in failure for failure in failures)
    result = Result(found, num_noticed)
    if not result.faults and not found.not_run:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(asdict(result)))
    return result


def stored(client: Client) -> Result | None:
    place = place_of(client)
    if not place.exists():
        return None
    found = json.loads(place.read_text())
    return Result(ClientRun(**found["run"]), found["num_noticed"])


def place_of(client: Client) -> Path:
    """Of the stored result; named by a hash of the files that it depends on."""
    own = f"scripts/clients/{client.module.partition('_')[0]}*.py", f"scripts/clients/requirements/{client.name}.*"
    shared = "jaxserve/**/*.py", "scripts/clients/checks.py", "scripts/proofs/**/*client*.py"
    digest = digest_of(file for pattern in (*own, *shared) for file in ROOT.glob(pattern))
    return ROOT / ".cache" / "proofs" / f"client-{client.name}-{digest}.json"


def table(runs: list[ClientRun]) -> list[str]:
    lines = ["| client | version | operations | requests | checks | failures | seconds |", "|---" * 7 + "|"]
    for each in runs:
        cells = [each.version, each.num_operations, each.num_requests, sum(each.num_checks.values())]
        cells += [len(each.failures), round(each.seconds)]
        told = f"not run: {each.not_run} |" + " |" * 5 if each.not_run else " | ".join(map(str, cells)) + " |"
        lines.append(f"| {each.name} | {told}")
    return lines


def table_of_checks(runs: list[ClientRun]) -> list[str]:
    lines = ["| client | what is compared | checks |", "|---" * 3 + "|"]
    return lines + [f"| {each.name} | {part} | {num} |" for each in runs for part, num in each.num_checks.items()]


def table_of_controls(results: list[Result]) -> list[str]:
    lines = ["| control | client | checks that fail, at least one wanted |", "|---" * 3 + "|"]
    return lines + [
        f"| {what} | {each.run.name} | {num} |" for each in results for what, num in each.num_noticed.items()
    ]
