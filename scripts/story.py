"""What `make run` tells: each event, and what is to become of each of its messages."""

from typing import NamedTuple

# What SQS is told of a message.
DONE = "done"
AGAIN_LATER = "again in … s"


class Step(NamedTuple):
    """One event, and what becomes of each of its messages, in the order of the event."""

    event: str
    about: str
    expected: list  # of (key, outcome, what SQS is told)


FIRST = Step(
    "first-delivery",
    "Three payments arrive. The work of each is done: the webhook is called.",
    [
        ("pay_xsNKoNU923rYH2Jm", "ACQUIRED", DONE),
        ("pay_5Co164JRGpvgL4Pc", "ACQUIRED", DONE),
        ("pay_4983Q1EBb1XbqxRj", "ACQUIRED", DONE),
    ],
)
REDELIVERY = Step(
    "redelivery",
    "The same three messages again, as after a lost delete. Nothing is left to do.",
    [
        ("pay_xsNKoNU923rYH2Jm", "DUPLICATE", DONE),
        ("pay_5Co164JRGpvgL4Pc", "DUPLICATE", DONE),
        ("pay_4983Q1EBb1XbqxRj", "DUPLICATE", DONE),
    ],
)
IN_CONFLICT = "pay_conflict_BLPd6YDiVr"
MIXED = Step(
    "mixed",
    "A new payment, one that its producer sent again, one that somebody else is working on,\n"
    "a line that is not JSON and has no key, a key used again for another amount, and in-batch duplicates.",
    [
        ("pay_qkddShS7uGvFr3NF", "ACQUIRED", DONE),
        ("pay_xsNKoNU923rYH2Jm", "DUPLICATE", DONE),
        (IN_CONFLICT, "CONFLICT", AGAIN_LATER),
        (None, "NO_KEY", AGAIN_LATER),
        ("pay_5Co164JRGpvgL4Pc", "MISMATCH", AGAIN_LATER),
        ("pay_YMuVevqpAfYTpVhX", "ACQUIRED", DONE),
        ("pay_YMuVevqpAfYTpVhX", "IN_BATCH_DUPLICATE", DONE),
    ],
)
SLOW = Step(
    "slow",
    f"The other owner of {IN_CONFLICT} is let go, and ends its work.",
    [(IN_CONFLICT, "ACQUIRED", DONE)],
)
AFTERWARDS = Step(
    "afterwards",
    "The message that was in conflict comes again, alone: by now its work is done.",
    [(IN_CONFLICT, "DUPLICATE", DONE)],
)
FIFO = Step(
    "fifo",
    "A FIFO queue: two groups side by side, each in its own order.",
    [
        ("pay_Mvm9jGVXvBBrNVc7", "ACQUIRED", DONE),
        ("pay_NfSrzeA2mH4dvLPS", "ACQUIRED", DONE),
        ("pay_EJsyVr2uFqsU7dKT", "ACQUIRED", DONE),
        ("pay_myqsGFCzHZMLfzVx", "ACQUIRED", DONE),
        ("pay_MaJtNaHYSNG3rq1n", "ACQUIRED", DONE),
    ],
)
# The order in which the webhook is to be called within each group.
FIFO_GROUPS = [
    ["pay_Mvm9jGVXvBBrNVc7", "pay_EJsyVr2uFqsU7dKT", "pay_MaJtNaHYSNG3rq1n"],
    ["pay_NfSrzeA2mH4dvLPS", "pay_myqsGFCzHZMLfzVx"],
]
REDRIVE = Step(
    "redrive",
    "The first three payments out of the dead-letter queue: same keys, new messageIds.",
    [
        ("pay_xsNKoNU923rYH2Jm", "DUPLICATE", DONE),
        ("pay_5Co164JRGpvgL4Pc", "DUPLICATE", DONE),
        ("pay_4983Q1EBb1XbqxRj", "DUPLICATE", DONE),
    ],
)
SNS = Step(
    "sns-envelope",
    "A payment by way of SNS, published twice: the key and the payload are inside the envelope.",
    [
        ("pay_KSpzox6NvrBcNDcg", "ACQUIRED", DONE),
        ("pay_KSpzox6NvrBcNDcg", "IN_BATCH_DUPLICATE", DONE),
    ],
)
EVENTBRIDGE = Step(
    "eventbridge",
    "An event of EventBridge, delivered twice, and then put again by its source.",
    [
        ("pay_GzR4tWq2LmXs8VbN", "ACQUIRED", DONE),
        ("pay_GzR4tWq2LmXs8VbN", "IN_BATCH_DUPLICATE", DONE),
        ("pay_GzR4tWq2LmXs8VbN", "IN_BATCH_DUPLICATE", DONE),
    ],
)
STORY = [FIRST, REDELIVERY, MIXED, SLOW, AFTERWARDS, FIFO, REDRIVE, SNS, EVENTBRIDGE]
