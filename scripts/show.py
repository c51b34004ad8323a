"""How the demo prints: headings, aligned tables, and colour only where a person reads it."""

import os
import shutil
import sys
import textwrap

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def heading(text):
    print(f"\n{bold(text)}", flush=True)


def line(text=""):
    print(textwrap.indent(text, "  ") or "", flush=True)


def error(text):
    print(f"\nerror: {text}", file=sys.stderr)


def table(header, rows):
    """Columns as wide as their widest cell; the last one is folded at the edge of the terminal."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells)][:-1]
    margin = sum(width + 2 for width in widths)
    room = max(24, shutil.get_terminal_size((140, 24)).columns - margin - 2)
    line()
    for number, (*first, last) in enumerate(cells):
        start = "  ".join(cell.ljust(width) for cell, width in zip(first, widths))
        folded = f"\n{' ' * margin}".join(textwrap.wrap(last, room) or [""])
        line((dim if number == 0 else str)(f"{start}  {folded}".rstrip()))
    line()


def bold(text):
    return f"\033[1m{text}\033[0m" if COLOUR else text


def dim(text):
    return f"\033[2m{text}\033[0m" if COLOUR else text
