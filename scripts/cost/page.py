"""The tables of docs/cost.md, in Markdown."""

import math
import re
from pathlib import Path

import growth
import model
from figures import FLEETS, HOURS, LIMITS, NODES, PRICES, RECORD_BYTES
from model import load_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"
RATES = [1, 100, 10_000]
STEPS = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000]


def table(header, rows):
    """A Markdown table with aligned columns, for the page and for a terminal."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines) + "\n"


def number(value, digits=3):
    """With three significant digits: 0.0569, 1.76, 1,760."""
    if value == 0 or math.isinf(value):
        return "0" if value == 0 else "–"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{round(value, digits - 1 - math.floor(math.log10(abs(value)))):,.{places}f}"


def money(usd):
    return f"{usd:,.2f}" if usd < 100 else f"{usd:,.0f}"


def plain(value):
    """A number of a constant as it is written: 0.0000133334, 1,250."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.10f}".rstrip("0").rstrip(".")


# ---- a load ----


def redis(load):
    """Such as `4 × cache.m7g.large`, or `serverless`."""
    if model.fleet(load).node is None:
        return "serverless"
    node, shards = model.nodes(load)
    clusters = model.clusters(load, shards)
    within = f" in {clusters} clusters" if clusters > 1 else ""
    return f"{shards * model.fleet(load).copies:,} × {node.type.replace('cache.', '')}{within}"


def needs(loads):
    rows = [
        ["messages in a batch", *(number(model.messages_per_batch(each)) for each in loads)],
        ["invocations a second", *(number(model.invocations(each)) for each in loads)],
        ["ms an invocation", *(number(model.batch_ms(each, model.messages_per_batch(each))) for each in loads)],
        ["concurrent invocations", *(number(model.concurrency(each)) for each in loads)],
        ["standard queues", *(growth.queues(each) for each in loads)],
        ["GB of records", *(number(model.records(each) * RECORD_BYTES / 1e9) for each in loads)],
        ["Redis nodes, with replicas", *map(redis, loads)],
    ]
    return table(["what it needs", *(f"{each.rate:,}/s" for each in loads)], rows)


def bill(loads):
    bills = [model.bill(each) for each in loads]
    rows = [[name, *(money(each.get(name, 0)) for each in bills)] for name in bills[0]]
    totals = [sum(each.values()) for each in bills]
    rows.append(["**a month**", *(f"**{money(total)}**" for total in totals)])
    messages = [each.rate * model.SECONDS / 1e6 for each in loads]
    rows.append(["a million messages", *(money(t / m) if m else "–" for t, m in zip(totals, messages))])
    return table(["USD", *(f"{each.rate:,}/s" for each in loads)], rows)


def ceilings(load):
    rows = [[row.resource, f"{number(row.rate)}/s", row.remedy] for row in growth.ceilings(load)]
    return table(["limit", "messages", "what to do"], rows)


# ---- the page ----


def idle():
    bills = {name: model.bill(load_of(0, profile=name)) for name in FLEETS}
    names = list(dict.fromkeys(line for each in bills.values() for line in each))
    rows = [[line, *(money(each.get(line, 0)) for each in bills.values())] for line in names]
    rows = [row for row in rows if any(cell != "0.00" for cell in row[1:])]
    rows.append(["**a month**", *(f"**{money(sum(each.values()))}**" for each in bills.values())])
    return table(["USD", *bills], rows)


def profiles():
    """What each profile costs idle and at a message a second, and what a million messages add."""
    rows = []
    for name in FLEETS:
        idle_usd, half, one = (sum(model.bill(load_of(rate, profile=name)).values()) for rate in (0, 0.5, 1))
        millions = model.SECONDS / 1e6
        rows.append([name, money(idle_usd), money(one), money(one / millions), money((one - half) / (millions / 2))])
    header = ["profile", "idle", "at 1/s", "a million messages at 1/s", "each further million"]
    return table(header, rows)


def batches():
    rows = []
    for batch, window in (10, 0), (10, 1), (100, 5), (1000, 60):
        each = load_of(100, batch=batch, window_s=window)
        lines = model.bill(each)
        calls = lines["Lambda requests"] + lines["Lambda time"]
        rows.append([
            batch, window, number(model.messages_per_batch(each)), money(calls),
            money(lines["SQS requests of the consumer"]), money(lines["logs, stored for 30 days"]),
        ])
    return table(["`BatchSize`", "`BatchingWindow`, s", "messages in a batch", "Lambda", "SQS", "logs"], rows)


def nodes():
    rows = []
    for node in NODES:
        pair = 2 * node.usd_per_hour * HOURS
        with_sync = money(pair + model.usd("durability by sync", pair)) if node.durable else "–"
        by_batch = (model.messages_per_second(node, 1, batch) for batch in (1, 10, 64))
        by_days = (model.usable_bytes(node) / RECORD_BYTES / 86400 / days for days in (1, 4, 14))
        rows.append([node.type, plain(node.usd_per_hour), node.gib, money(pair), with_sync,
                     *map(number, by_batch), *map(number, by_days)])
    header = ["node", "USD an hour", "GiB", "two, a month", "with sync", "CPU, batch 1", "CPU, batch 10",
              "CPU, batch 64", "memory, 1 day", "memory, 4 days", "memory, 14 days"]
    return table(header, rows)


def steps():
    rows, below = [], 0
    for rate in STEPS:
        long, short = load_of(rate), load_of(rate, retention_days=1)
        crossed = [row.resource for row in growth.ceilings(load_of(1)) if below < row.rate <= rate]
        rows.append([
            f"{rate:,}", number(model.messages_per_batch(long)), number(model.concurrency(long)), growth.queues(long),
            redis(long), number(sum(model.bill(long).values())), redis(short), number(sum(model.bill(short).values())),
            "; ".join(crossed) or "–",
        ])
        below = rate
    return table(["messages/s", "batch", "concurrent", "queues", "Redis, 14 days", "USD a month", "Redis, 1 day",
                  "USD a month", "limits of the profile standard that are newly reached"], rows)


def ramps():
    rows = []
    for rate in STEPS[2:]:
        each = load_of(rate)
        pollers = growth.pollers(each)
        rows.append([
            f"{rate:,}", growth.queues(each), *ramp_cells(growth.standard_ramp(each)),
            *ramp_cells(growth.provisioned_ramp(each)),
            *(("–", "–") if pollers is None else
              (f"{pollers:,}", money(model.usd("event pollers of provisioned mode", pollers * HOURS)))),
        ])
    columns = "backlog", "oldest, s", "over after, s"
    modes = [f"{mode}: {column}" for mode in ("standard", "provisioned") for column in columns]
    return table(["messages/s", "queues", *modes, "pollers without a backlog", "USD a month"], rows)


def ramp_cells(ramp):
    return number(ramp.peak_backlog), number(ramp.oldest_s), "–" if ramp.drained_s is None else number(ramp.drained_s)


def prices():
    rows = []
    for name, price in sorted(PRICES.items()):
        tiers = (f", {plain(usd)} beyond {start:,}" for start, usd in price.tiers)
        rows.append([name, plain(price.usd) + "".join(tiers), price.unit, price.source])
    return table(["price", "USD", "for a", "source"], rows)


def limits():
    rows = [[name, plain(value), f"[{at.split('/')[-1]}]({at})"] for name, (value, at) in LIMITS.items()]
    return table(["limit", "value", "source"], rows)


def loads():
    return [load_of(rate) for rate in RATES]


TABLES = {
    "profiles": profiles,
    "idle": idle,
    "needs": lambda: needs(loads()),
    "bill": lambda: bill(loads()),
    "batches": batches,
    "nodes": nodes,
    "ceilings": lambda: ceilings(load_of(1)),
    "steps": steps,
    "ramps": ramps,
    "prices": prices,
    "limits": limits,
}


def rendered():
    """The page with each table between its markers written anew."""
    text = PAGE.read_text()
    for name, render in TABLES.items():
        start, end = f"<!-- table {name} -->\n", f"<!-- end {name} -->"
        pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"docs/cost.md has no markers of the table {name}")
        text = pattern.sub(lambda _: f"{start}\n{render()}\n{end}", text)
    return text
