"""Eight outside clients, each in its own environment, work with a served SmolLM2 and read what direct requests return.

The clients are those of scripts/clients: each is installed with pinned versions on first use, and its script compares
what the client returns with direct requests at temperature 0 or with the same seed. The server computes in float32 and
independently of the batch, so these are equal. schemathesis sends 500 cases of each operation of /openapi.json to a
server of its own. Limits: no failed check, no answer with status 5xx, and a time per client. A client that cannot be
installed is listed as not run. Controls: a relay falsifies answers, and the clients' checks must fail.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.proofs.helpers.client_relay import FALSIFIED, Fault, other_texts, relay, teapot, without_created
from scripts.proofs.helpers.client_runs import Client, ClientRun, run
from scripts.proofs.helpers.served_model import served
from scripts.proofs.helpers.serving_row import MODEL, SIZES

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


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove clients")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"{', '.join(NAMES)} (default: all)")
    names = parser.parse_args(argv).clients or NAMES
    if unknown := set(names) - set(NAMES):
        raise SystemExit(f"unknown client {', '.join(sorted(unknown))}: must be one of {', '.join(NAMES)}")
    runs, controls = list[ClientRun](), list[tuple[Control, ClientRun]]()
    for options in (EXACT, SHORT):
        if clients := [client for client in CLIENTS if client.options == options and client.name in names]:
            with served(MODEL, *options, key=KEY) as url:
                for client in clients:
                    runs.append(run(client, url, KEY))
                    print(*table(runs[-1:])[2:], *runs[-1].failures[:MAX_SHOWN], sep="\n", file=sys.stderr)
                    controls += [] if runs[-1].not_run else controls_of(client, url)
    lines = [*table(runs), "", *table_of_checks(runs), "", *table_of_controls(controls), ""]
    faults = [f"{each.name}: {failure}" for each in runs for failure in each.failures]
    faults += [
        f"{each.name} does not notice: {control.what}" for control, each in controls if not notices(control, each)
    ]
    if faults:
        raise SystemExit("\n".join([*lines, *faults[:MAX_SHOWN], f"{len(faults)} failures"]))
    if set(names) != set(NAMES):
        raise SystemExit("\n".join([*lines, "All checks hold; no report is written for a part of the clients."]))
    not_run = ", ".join(each.name for each in runs if each.not_run) or "none"
    return "\n".join([*lines, f"All checks hold, and each control is noticed. Clients that were not run: {not_run}."])


def controls_of(client: Client, url: str) -> Iterator[tuple[Control, ClientRun]]:
    for control in CONTROLS:
        if client.name in control.clients:
            with relay(url, control.fault) as through:
                yield control, run(client, url, KEY, through)


def notices(control: Control, found: ClientRun) -> bool:
    return any(control.words in failure for failure in found.failures)


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


def table_of_controls(controls: list[tuple[Control, ClientRun]]) -> list[str]:
    lines = ["| control: answers of /v1 with | client | failed checks, at least one wanted |", "|---" * 3 + "|"]
    return lines + [f"| {control.what} | {each.name} | {len(each.failures)} |" for control, each in controls]
