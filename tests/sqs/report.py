"""The differences as a table."""

from pathlib import Path

import tools

PAGE = tools.ROOT / "docs" / "simulated-sqs.md"
BEGIN, END = "<!-- begin: make compare-sqs -->", "<!-- end: make compare-sqs -->"
MISSING = "not offered"


def differs(rule, names, seen):
    """Whether the implementations differ from each other or from the documentation."""
    answers = {seen[rule, name] for name in names} - {MISSING}
    return len(answers) > 1 or not all(map(rule.allows, answers))


def decision(rule, names, seen):
    """Which implementations follow the documentation."""
    simulated, *others = names
    if not rule.allows(seen[rule, simulated]):
        return "**the simulated queue is wrong**"
    wrong = [name.split()[0] for name in others if seen[rule, name] != MISSING and not rule.allows(seen[rule, name])]
    if wrong:
        return f"as documented; {' and '.join(wrong)} not"
    return "either is allowed" if len(rule.allowed) > 1 else "as documented; other error codes"


def show(rules, names, seen):
    for rule in rules:
        if differs(rule, names, seen):
            print(f"{rule.name}\n    documented: {' | '.join(rule.allowed)}")
            for name in names:
                print(f"    {name}: {seen[rule, name]}")


def write(rules, names, seen):
    """Replaces the table in the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(rules, names, seen)}{END}{after}")


def table(rules, names, seen):
    different = [rule for rule in rules if differs(rule, names, seen)]
    lines = [
        f"{len(rules)} rules. In {len(rules) - len(different)} all that offer the calls agree; {len(different)} differ:",
        "",
        f"| rule | {' | '.join(names)} | AWS's documentation | decision |",
        "|---" * (len(names) + 3) + "|",
    ]
    for rule in different:
        answers = " | ".join(seen[rule, name] for name in names)
        quote = f"[{rule.quote}]({rule.page})"
        lines.append(f"| {rule.name} | {answers} | {quote} | {decision(rule, names, seen)} |")
    same = [f"[{rule.name}]({rule.page})" for rule in rules if rule not in different]
    return "\n".join([*lines, "", f"Agreed: {'; '.join(same)}.", ""])
