"""Rules of SQS, each a function that makes the same calls to every implementation and returns what it saw."""

import time

from botocore.exceptions import ClientError

GUIDE = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/"
API = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_"
# Seconds. A visibility timeout that does not end during the calls around it, even on a busy machine.
SHORT = 2

RULES = []


# The codes of ministack and moto for an action that they do not have.
NO_ACTION = ("InvalidAction", "500")


class NotOffered(Exception):
    """The implementation does not have this action."""


class Rule:
    """`function` makes calls to the queues of an endpoint, and returns what it saw."""

    def __init__(self, function, page, quote, allowed, needs_mapping=False):
        self.name = function.__name__.replace("_", " ")
        self.function, self.page, self.quote, self.allowed = function, page, quote, allowed
        self.needs_mapping = needs_mapping

    def allows(self, seen):
        """Whether the documentation allows it. It seldom says which error is returned, so that is not compared."""
        return without_codes(seen) in self.allowed


def rule(page, quote, *allowed, needs_mapping=False):
    """A rule with its page, its words, and what it allows. Where the documentation is silent, it allows several."""

    def add(function):
        RULES.append(Rule(function, page, quote, allowed, needs_mapping))
        return function

    return add


def without_codes(seen):
    """`accepted, refused (OverLimit)` → `accepted, refused`"""
    return ", ".join(part.split(" (")[0] for part in seen.split(", "))


class Queue:
    """A queue, and calls of its API."""

    def __init__(self, client, name, **attributes):
        self.client, self.name = client, name
        fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        attributes = {key: str(value) for key, value in attributes.items()}
        self.url = client.create_queue(QueueName=name, Attributes={**fifo, **attributes})["QueueUrl"]

    @property
    def arn(self):
        return self.attributes("QueueArn")[0]

    def attributes(self, *names):
        said = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=list(names))["Attributes"]
        return [said[name] for name in names]

    def counts(self):
        """Visible, in flight and delayed messages."""
        return " ".join(self.attributes(*(f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed"))))

    def send(self, body="a", group=None, id=None, delay=None, attributes=None):
        parameters = {
            "MessageGroupId": group,
            "MessageDeduplicationId": id,
            "DelaySeconds": delay,
            "MessageAttributes": attributes,
        }
        given = {name: value for name, value in parameters.items() if value is not None}
        return self.client.send_message(QueueUrl=self.url, MessageBody=body, **given)

    def send_batch(self, *entries):
        return self.client.send_message_batch(QueueUrl=self.url, Entries=list(entries))

    def receive(self, most=10, visibility=None, wait=0):
        own = {} if visibility is None else {"VisibilityTimeout": visibility}
        names = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        said = self.client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=most, WaitTimeSeconds=wait, **own, **names)
        return said.get("Messages", [])

    def change(self, message, seconds):
        handle = message["ReceiptHandle"]
        self.client.change_message_visibility(QueueUrl=self.url, ReceiptHandle=handle, VisibilityTimeout=seconds)

    def delete(self, message):
        self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])


def text(value):
    """An attribute with this text."""
    return {"DataType": "String", "StringValue": value}


def bodies(messages):
    return " ".join(message["Body"].encode("unicode_escape").decode() for message in messages) or "none"


def outcome(call, *arguments, **parameters):
    """`accepted`, or `refused` with the code of the error."""
    try:
        call(*arguments, **parameters)
        return "accepted"
    except ClientError as error:
        if code(error) in NO_ACTION:
            raise NotOffered from None
        return f"refused ({code(error)})"


def code(error):
    """The name of the error without its namespace."""
    return error.response["Error"]["Code"].replace("#", ".").rpartition(".")[2].removesuffix("Exception")


def saw(*parts):
    return ", ".join(str(part) for part in parts)


def pause(seconds=SHORT):
    """Waits until a timeout of `seconds` has ended."""
    time.sleep(seconds + 0.6)
