"""A terminal's screen as an SVG picture, for the README.

    tmux capture-pane -e -p -t SESSION | python scripts/terminal.py > docs/images/NAME.svg

Knows bold, dim and the eight colours; anything else is shown plain.
"""

import html
import re
import sys

COLOURS = ["#6b7280", "#f87171", "#4ade80", "#facc15", "#60a5fa", "#c084fc", "#22d3ee", "#e5e7eb"]
WIDTH, HEIGHT, MARGIN = 8.43, 19, 16


def spans(line):
    """Pieces of a line with their style."""
    bold, dim, colour = False, False, None
    for codes, text in re.findall(r"(?:\x1b\[([\d;]*)m)?([^\x1b]*)", line):
        for code in map(int, filter(None, codes.split(";"))) if codes else []:
            if code == 0:
                bold, dim, colour = False, False, None
            elif code in (1, 2):
                bold, dim = bold or code == 1, dim or code == 2
            elif code == 39:
                colour = None
            elif 30 <= code <= 37:
                colour = COLOURS[code - 30]
        if text:
            yield text, bold, dim, colour


def main():
    lines = [line.rstrip("\n") for line in sys.stdin]
    while lines and not re.sub(r"\x1b\[[\d;]*m", "", lines[-1]).strip():
        lines.pop()
    columns = max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in lines)
    size = (columns * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]:.0f}" height="{size[1]:.0f}">')
    print('<rect width="100%" height="100%" rx="8" fill="#111827"/>')
    print('<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" '
          'fill="#e5e7eb">')
    for number, line in enumerate(lines):
        column, y = 0, MARGIN + HEIGHT * (number + 0.75)
        for text, bold, dim, colour in spans(line):
            style = f' fill="{colour}"' if colour else ""
            style += ' font-weight="bold"' if bold else ""
            style += ' opacity="0.6"' if dim else ""
            if text.strip():
                x = MARGIN + column * WIDTH
                length = len(text) * WIDTH
                # Browsers collapse other spaces.
                kept = html.escape(text).replace(" ", "\N{NO-BREAK SPACE}")
                print(f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}"{style}>{kept}</text>')
            column += len(text)
    print("</g></svg>")


if __name__ == "__main__":
    main()
