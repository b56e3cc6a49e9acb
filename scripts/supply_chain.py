#!/usr/bin/env python3
"""Checks what dahl is built from: licences, sources, duplicate versions, reasons, advisories.

    python3 scripts/supply_chain.py

Reads `cargo metadata` and Cargo.toml; needs Python 3.11 and nothing else. Prints one line per
check and exits with 1 where one fails.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Permissive licences alone: dahl is MIT or Apache-2.0, and stays so with all of its parts.
LICENCES = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}

# crates.io as Cargo writes it into its lock file.
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"

# Crates that are there in several versions, with who needs the other ones.
DUPLICATES = {
    "cpufeatures": "sha2, and proptest's generator (tests)",
    "darling": "nvml-wrapper's macros and ratatui's (build)",
    "darling_core": "as darling",
    "darling_macro": "as darling",
    "getrandom": "bolero and proptest (tests)",
    "miniz_oxide": "flate2 and png",
    "r-efi": "as getrandom",
    "rand": "bolero and proptest (tests)",
    "rand_core": "rand_chacha, and proptest's (tests)",
    "signal-hook": "ours and crossterm's",
    "syn": "macros of several years (build)",
    "thiserror": "ours and nvml-wrapper's",
    "thiserror-impl": "as thiserror",
    "toml_datetime": "toml, and bolero's macros (tests)",
    "winnow": "toml and its parser, and bolero's macros (tests)",
}


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def is_allowed(expression):
    """Whether an SPDX expression leaves a choice of allowed licences alone."""
    expression = expression.replace("/", " OR ")
    if "(" in expression:
        # Innermost brackets first: each becomes a licence that is allowed, or one that is not.
        found = re.search(r"\(([^()]*)\)", expression)
        if found is None:
            return False
        inside = "MIT" if is_allowed(found[1]) else "none"
        return is_allowed(expression[: found.start()] + inside + expression[found.end() :])
    choices = [choice.split(" AND ") for choice in expression.split(" OR ")]
    return any(all(one.strip() in LICENCES for one in choice) for choice in choices)


def licences(packages):
    wrong = [
        f"{package['name']} {package['version']}: {package['license'] or 'no licence'}"
        for package in packages
        if not is_allowed(package["license"] or "")
    ]
    return f"{len(packages)} packages with licences of the list", wrong


def sources(packages):
    wrong = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if package["source"] is None:
            if not Path(package["manifest_path"]).is_relative_to(ROOT):
                wrong.append(f"{name}: outside of the repository")
        elif package["source"] != CRATES_IO:
            wrong.append(f"{name}: {package['source']}")
    own = sum(package["source"] is None for package in packages)
    return f"{own} packages of the repository, {len(packages) - own} of crates.io", wrong


def duplicates(packages):
    versions = {}
    for package in packages:
        versions.setdefault(package["name"], set()).add(package["version"])
    several = {name: sorted(all) for name, all in versions.items() if len(all) > 1}
    wrong = [f"{name}: {', '.join(all)}" for name, all in several.items() if name not in DUPLICATES]
    wrong += [f"{name}: one version, no longer a duplicate" for name in DUPLICATES if name not in several]
    return f"{len(several)} crates in several versions, each with its reason", wrong


def reasons(_):
    """Every dependency has a comment behind it or above it that says what it is for."""
    text = (ROOT / "Cargo.toml").read_text()
    names = tomllib.loads(text)["workspace"]["dependencies"]
    lines = text.split("[workspace.dependencies]\n", 1)[1].split("\n[", 1)[0].splitlines()
    wrong = []
    for above, line in zip([""] + lines, lines):
        name = line.split("=", 1)[0].strip()
        said = "#" in line or above.startswith("#")
        if name in names and not name.startswith("dahl") and not said:
            wrong.append(f"{name}: no comment in Cargo.toml says what it is for")
    manifests = [ROOT / "Cargo.toml", *sorted(ROOT.glob("crates/*/Cargo.toml"))]
    for manifest in manifests[1:]:
        crate = tomllib.loads(manifest.read_text())
        tables = [crate, *crate.get("target", {}).values()]
        for table in tables:
            for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
                for name, how in table.get(kind, {}).items():
                    if not (isinstance(how, dict) and how.get("workspace")):
                        where = manifest.relative_to(ROOT)
                        wrong.append(f"{where}: {name}: not a dependency of the workspace")
    return f"{len(names)} direct dependencies, each with its reason in Cargo.toml", wrong


def advisories(_):
    if shutil.which("cargo-audit") is None:
        return "not checked: cargo-audit is not installed", []
    done = subprocess.run(["cargo", "audit", "--quiet"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return "no known vulnerability", []
    if "fetch" in done.stderr:
        return "not checked: the database of advisories cannot be reached", []
    return "cargo audit", [line for line in (done.stdout + done.stderr).splitlines() if line]


def main():
    packages = metadata()["packages"]
    failed = False
    for check in (licences, sources, duplicates, reasons, advisories):
        what, wrong = check(packages)
        print(f"{check.__name__}: {'FAILED' if wrong else what}")
        for line in wrong:
            print(f"  {line}")
        failed |= bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
