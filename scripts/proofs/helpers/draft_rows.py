"""The rows of a proof about drafts, as a table."""

import sys
from collections.abc import Collection

from scripts.proofs.helpers.draft_equality import Way
from scripts.proofs.helpers.stored_rows import stored_row


def table_of(
    proof: str, ways: dict[str, Way], witnesses: dict[str, str], accepting_all: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """The lines of the table, and the rows that show a text which is neither equal nor a tie, or in which nothing has
    happened of what they are about.

    witnesses: columns that must not be 0, "accepted" for all others. accepting_all: rows in which every draft must be
    accepted.
    """
    lines, bad = list[str](), list[str]()
    for name, way in ways.items():
        for row in stored_row(proof, name, way.options.get("tensor_parallel_size", 1)):
            if not lines:
                lines += [f"| way of running | {' | '.join(row)} |", "|---" * (1 + len(row)) + "|"]
            lines.append(f"| {name} | {' | '.join(map(str, row.values()))} |")
            print(lines[-1], file=sys.stderr)
            has_happened = all(row[column] for column in ("accepted", witnesses.get(name, "accepted")))
            has_rejected = name in accepting_all and row["accepted"] < row["of drafts"]
            if has_rejected or row["equal"] + row["ties"] != row["of"] or not has_happened:
                bad.append(f"{name}, {row['sampler']}")
    return lines, bad
