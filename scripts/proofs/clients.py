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
NAMES = [client.name for client in CLIENTS]
# What is falsified, how, the clients that must notice, and words of their failures.
CONTROLS: list[tuple[str, Fault, list[str], str]] = [
    ("texts and log-probabilities", other_texts, NAMES[:-1], FALSIFIED),
    ("`created` left out", without_created, ["openai"], "APIResponseValidationError"),
    ("`created` left out", without_created, ["schemathesis"], "created"),
    ("status 418 instead of 200", teapot, ["schemathesis"], "status 418"),
]


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove clients")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"{', '.join(NAMES)} (default: all)")
    args = parser.parse_args(argv)
    if unknown := set(args.clients) - set(NAMES):
        raise SystemExit(f"unknown client {', '.join(sorted(unknown))}: must be one of {', '.join(NAMES)}")
    wanted = args.clients or NAMES
    runs, controls = list[ClientRun](), list[str]()
    for options in (EXACT, SHORT):
        clients = [client for client in CLIENTS if client.options == options and client.name in wanted]
        if clients:
            with served(MODEL, *options, key=KEY) as url:
                for client in clients:
                    runs.append(run(client, url, KEY))
                    print(*lines_of(runs[-1:])[2:], *runs[-1].failures, sep="\n", file=sys.stderr)
                    controls += controls_of(client, url) if not runs[-1].not_run else []
    lines = [
        *lines_of(runs),
        "",
        *checks_of(runs),
        "",
        "| control: falsified | client | failures |",
        "|---" * 3 + "|",
        *controls,
    ]
    faults = [f"{each.name}: {failure}" for each in runs for failure in each.failures]
    faults += [f"control not noticed: {line}" for line in controls if line.endswith("(!) |")]
    not_run = ", ".join(each.name for each in runs if each.not_run)
    if faults or set(wanted) != set(NAMES):
        raise SystemExit("\n".join([*lines, "", *faults, f"{len(faults)} failures; not run: {not_run or 'none'}"]))
    return "\n".join(
        [*lines, "", f"{len(runs)} clients; not run: {not_run or 'none'}. All checks of those that ran hold."]
    )


def controls_of(client: Client, url: str) -> Iterator[str]:
    """A line per control of the client, marked with (!) where no failure has the words."""
    for what, fault, names, words in CONTROLS:
        if client.name in names:
            with relay(url, fault) as through:
                failures = run(client, url, KEY, through).failures
            is_noticed = any(words in failure for failure in failures)
            yield f"| {what} | {client.name} | {len(failures)}{'' if is_noticed else ' (!)'} |"


def lines_of(runs: list[ClientRun]) -> list[str]:
    lines = ["| client | version | operations | requests | checks | failures | seconds |", "|---" * 7 + "|"]
    for each in runs:
        cells = [each.version, len(each.num_requests), each.num_requests.total(), sum(each.num_checks.values())]
        cells += [len(each.failures), round(each.seconds)]
        told = f"not run: {each.not_run} |" + " |" * 5 if each.not_run else " | ".join(map(str, cells)) + " |"
        lines.append(f"| {each.name} | {told}")
    return lines


def checks_of(runs: list[ClientRun]) -> list[str]:
    lines = ["| client | what is compared | checks |", "|---" * 3 + "|"]
    return lines + [f"| {each.name} | {part} | {num} |" for each in runs for part, num in each.num_checks.items()]
