"""Runs docs/tutorial.md: every command that is marked `<!-- run -->` must print what the page shows.

    cargo build --release
    python scripts/tutorial.py path/to/fashion-mnist [--dahl target/release/dahl] [--write]

Blocks after `<!-- file: NAME -->` are written to NAME. Times, rates, memory and energy differ from run
to run and are not compared; losses, accuracies and hashes are (with AVX2 or AVX-512). `--write`
replaces the outputs of the page. `<!-- run: python … -->` needs torch and safetensors, and is skipped
without them.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"<!-- (run|file)(?:: ([^>]*?))? -->\n```\w+\n(.*?)```", re.S)
# What differs from run to run, in lines that are otherwise compared.
VARIES = [
    (re.compile(r"^( +\d+ .*%) +\d+$", re.M), r"\1 RATE"),
    (re.compile(r"after [\d.]+ s( in this session)?, \d+ samples/s"), r"after TIME\1, RATE samples/s"),
    (re.compile(r"^memory: .*$", re.M), "memory"),
    (re.compile(r"^energy: .*$", re.M), "energy"),
    (re.compile(r"\d+ workers?, f32"), "WORKERS, f32"),
]


def compared(text):
    for pattern, replacement in VARIES:
        text = pattern.sub(replacement, text)
    return text.strip()


def run(command, place, path):
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    done = subprocess.run(command, shell=True, cwd=place, env=environment, text=True, stdout=-1, stderr=-2)
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fashion_mnist", type=Path)
    parser.add_argument("--dahl", type=Path, default=ROOT / "target/release/dahl")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    page = ROOT / "docs/tutorial.md"
    text = page.read_text()
    has_torch = all(importlib.util.find_spec(name) for name in ("torch", "safetensors"))
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        clothes = [sys.executable, ROOT / "scripts/clothes.py", options.fashion_mnist.resolve(), "clothes"]
        subprocess.run(clothes, cwd=place, check=True, stdout=-3)

        def block(match):
            nonlocal wrong
            kind, argument, body = match.groups()
            if kind == "file":
                (place / argument).write_text(body)
                return match.group(0)
            if argument:
                command, expected = argument.split(", prints ")
                if not has_torch:
                    print(f"skipped: {command} (no torch)")
                    return match.group(0)
                (place / command.split()[1]).write_text(body)
                found = run(command, place, options.dahl.resolve().parent)
                if found.strip() != expected:
                    wrong += 1
                    print(f"$ {command}\nexpected {expected}, found:\n{found}")
                return match.group(0)
            outputs = []
            for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
                command, _, expected = part.partition("\n")
                found = run(command, place, options.dahl.resolve().parent)
                if compared(found) != compared(expected):
                    wrong += 1
                    print(f"$ {command}\nexpected:\n{expected}found:\n{found}")
                outputs.append(f"$ {command}\n{found}")
            return match.group(0).replace(body, "".join(outputs))

        written = BLOCK.sub(block, text)
    if options.write:
        page.write_text(written)
    print(f"{wrong} outputs differ from docs/tutorial.md")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
