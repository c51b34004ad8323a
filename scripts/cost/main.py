"""`make cost`: what a load needs, what it costs in a month, and which limits come next.

    make cost RATE=100 [NAME=VALUE …]        the load of these options
    python3 scripts/cost/main.py --write     writes the tables of docs/cost.md
"""

import math
import sys

import page
from figures import FLEETS
from model import load_of

# What each option may be, and what it means. model.load_of has the defaults.
OPTIONS = {
    "RATE": ((0.001, 100_000_000), "new messages a second"),
    "PROFILE": (tuple(FLEETS), "fleet of scripts/cost/figures.py"),
    "RETENTION_DAYS": ((0.001, 3650), "days that a record is kept"),
    "BATCH": ((1, 10_000), "BatchSize"),
    "WINDOW_S": ((0, 300), "BatchingWindow in seconds"),
    "WORK_MS": ((0, 900_000), "time of the work for a message in milliseconds"),
    "BODY_BYTES": ((0, 1_048_576), "size of a message body"),
    "FAILED_PERCENT": ((0, 99), "deliveries that fail and come again"),
    "MEMORY_MB": ((128, 10_240), "MemorySize"),
    "ARCH": (("arm64", "x86_64"), "Architecture"),
}


def main(arguments):
    if arguments == ["--write"]:
        page.PAGE.write_text(page.rendered())
        return
    load = load_of(**{"rate": 100, **dict(map(option, arguments))})
    if load.batch > 10 and load.window_s < 1:
        sys.exit("error: Lambda requires WINDOW_S of at least 1 for a BATCH above 10")
    rows = [[name, getattr(load, name.lower()), about] for name, (_, about) in OPTIONS.items()]
    print(page.table(["option", "value", "meaning"], rows))
    print(page.needs([load]), page.bill([load]), page.ceilings(load), sep="\n")
    print("In USD, for 730 hours in us-east-1. docs/cost.md has the assumptions and the sources.")


def option(argument):
    """The name and the value of `NAME=VALUE`."""
    name, _, text = argument.partition("=")
    if name not in OPTIONS:
        sys.exit(f"error: {argument}: the options are {', '.join(OPTIONS)}")
    allowed, _ = OPTIONS[name]
    if isinstance(allowed[0], str):
        if text not in allowed:
            sys.exit(f"error: {name} is one of {', '.join(allowed)}")
        return name.lower(), text
    lowest, highest = allowed
    if not lowest <= as_number(text) <= highest:
        sys.exit(f"error: {name} is a number from {lowest} to {highest}")
    return name.lower(), as_number(text)


def as_number(text):
    """An integer if it can be one, and nan if it is not a number."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return int(value) if value.is_integer() else value


if __name__ == "__main__":
    main(sys.argv[1:])
