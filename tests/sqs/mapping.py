"""What an event source mapping deletes, by the function's response to a batch of three messages."""

from rule import bodies, pause, rule

PAGE = "https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html"
CONDITIONS = PAGE + "#sqs-batchfailurereporting-conditions"
SUCCESS = (
    "Lambda treats a batch as a complete success if your function returns any of the following: An empty batchItemFailures list, "
    "A null batchItemFailures list, An empty EventResponse, A null EventResponse"
)
FAILURE = (
    "Lambda treats a batch as a complete failure if your function returns any of the following: An invalid JSON response, "
    "An empty string itemIdentifier, A null itemIdentifier, An itemIdentifier with a bad key name, "
    "An itemIdentifier value with a message ID that doesn't exist"
)
SILENT = "silent on this response"
# Seconds. At least the function's timeout, or Lambda refuses the mapping.
VISIBILITY = 6

ALL, NONE = "a1 a2 a3", "none"


def named(id="ID", key="itemIdentifier"):
    """The response that names one message. `ID` stands for the messageId of `a2`."""
    return '{"batchItemFailures":[{"%s":%s}]}' % (key, f'"{id}"' if id is not None else "null")


# The sentence of the rule, its page and words, the response or None for an error, and what may be left in the queue.
CASES = [
    ("the named message stays", PAGE, "make only the failed messages visible again", named(), ["a2"]),
    ("an empty list deletes all", CONDITIONS, SUCCESS, '{"batchItemFailures":[]}', [NONE]),
    ("a null list deletes all", CONDITIONS, SUCCESS, '{"batchItemFailures":null}', [NONE]),
    ("an empty object deletes all", CONDITIONS, SUCCESS, "{}", [NONE]),
    ("null deletes all", CONDITIONS, SUCCESS, "null", [NONE]),
    ("an object without the list deletes all", CONDITIONS, SUCCESS, '{"statusCode":200}', [NONE]),
    ("invalid JSON keeps all", CONDITIONS, FAILURE, '{"batchItemFailures":[', [ALL]),
    ("an empty identifier keeps all", CONDITIONS, FAILURE, named(""), [ALL]),
    ("a null identifier keeps all", CONDITIONS, FAILURE, named(None), [ALL]),
    ("a bad key name keeps all", CONDITIONS, FAILURE, named(key="messageId"), [ALL]),
    ("an unknown identifier keeps all", CONDITIONS, FAILURE, named("unknown"), [ALL]),
    ("a list that is a text", CONDITIONS, SILENT, '{"batchItemFailures":"ID"}', [ALL, NONE]),
    ("a response that is a list", CONDITIONS, SILENT, "[]", [ALL, NONE]),
    (
        "an error keeps all",
        CONDITIONS,
        "If your function throws an exception, the entire batch is considered a complete failure",
        None,
        [ALL],
    ),
]


def left(endpoint, text, fifo=False, reports=True):
    """The messages that are received again after this response."""
    queue = endpoint.make(fifo=fifo, VisibilityTimeout=VISIBILITY)
    group = lambda body: {"MessageGroupId": "g", "MessageDeduplicationId": body} if fifo else {}
    entry = lambda body: {"Id": body, "MessageBody": body, **group(body)}
    queue.send_batch(*map(entry, ("a1", "a2", "a3")))
    endpoint.invoke(queue, text, reports, timeout=VISIBILITY)
    pause(VISIBILITY)
    return bodies(sorted(queue.receive(), key=lambda message: message["Body"]))


def add(name, page, quote, text, allowed, **options):
    def check(endpoint):
        return left(endpoint, text, **options)

    check.__name__ = f"mapping: {name}"
    rule(page, quote, *allowed, needs_mapping=True)(check)


for case in CASES:
    add(*case)
add(
    "without ReportBatchItemFailures the list is ignored",
    PAGE,
    "To turn on partial batch responses, specify ReportBatchItemFailures",
    named(),
    [NONE],
    reports=False,
)
add(
    "on a FIFO queue the named message stays and the others are deleted",
    PAGE,
    "your function should stop processing messages after the first failure and return all failed and unprocessed messages",
    named(),
    ["a2"],
    fifo=True,
)
