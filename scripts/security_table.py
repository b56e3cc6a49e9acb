#!/usr/bin/env python3
"""Runs what SECURITY.md promises by, and prints its table of counts.

    python3 scripts/security_table.py [SECONDS per fuzz target, 60 by default] [--write]

With --write the table takes the place of the one in SECURITY.md. Exits with 1 where a check
fails; the table then is not written.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("<!-- counts -->\n", "<!-- end of counts -->\n")


def output(command):
    """Lines of a command; nothing where there is no such script."""
    if not (ROOT / command[-1 if command[0] == "python3" else 0]).exists():
        print(f"{command[0]}: not there, left out", file=sys.stderr)
        return []
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: failed\n{done.stdout}")
    return done.stdout.splitlines()


def fuzzed(seconds):
    for line in output(["scripts/fuzz.sh", seconds]):
        if line.startswith("fuzz"):
            _, format, kept, executions, read, peak, longest, failures = re.split(r"  +", line)
            counted = f"{executions}, {kept}, {read}; {peak}, {longest}"
            yield f"fuzz `{format}`", counted, failures.split()[0]


def faults():
    for line in output(["scripts/fault_campaign.sh"]):
        found = re.search(r"(\w[\w, ]*): (.*), (\d+) wrong", line)
        if found:
            yield f"faults `{found[1]}`", found[2], found[3]


def parts():
    for line in output(["python3", "scripts/supply_chain.py"]):
        check, counted = line.split(": ", 1)
        yield f"supply chain, {check}", counted, "0"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    rows = [*fuzzed(arguments[0] if arguments else "60"), *faults(), *parts()]
    table = "| check | counts | failures |\n|---|---|---|\n"
    table += "".join(f"| {check} | {counted} | {failures} |\n" for check, counted, failures in rows)
    print(table, end="")
    if "--write" in sys.argv:
        path = ROOT / "SECURITY.md"
        before, rest = path.read_text().split(MARKS[0])
        _, after = rest.split(MARKS[1])
        path.write_text(before + MARKS[0] + table + MARKS[1] + after)


if __name__ == "__main__":
    main()
