"""A function, its queue with a dead-letter queue, and the event source mapping between them."""

import itertools
import json
import subprocess

from botocore.exceptions import ClientError

from run import print_table
from servers import Failed, kill

KEY = "Idempotency-Key"
LETTER = "Idempotency-Dead-Letter"
# The limit of SendMessageBatch.
MAX_BATCH = 10

numbers = itertools.count()


class Message:
    """A message to send. `group` is for FIFO queues."""

    def __init__(self, key, body=None, group=None, attributes=None):
        self.key = key
        self.attributes = attributes or {}
        self.body = body or json.dumps({"paymentId": key, "amount": 4200})
        self.group = group
        # Unique, so that a FIFO queue does not deduplicate messages with the same key.
        self.deduplication_id = f"sent-{next(numbers)}"

    def entry(self, number):
        entry = {"Id": str(number), "MessageBody": self.body}
        key = {KEY: {"DataType": "String", "StringValue": self.key}} if self.key else {}
        if attributes := {**key, **self.attributes}:
            entry["MessageAttributes"] = attributes
        if self.group:
            entry |= {"MessageGroupId": self.group, "MessageDeduplicationId": self.deduplication_id}
        return entry


class Consumer:
    def __init__(self, cloud, name):
        self._cloud = cloud
        self._sqs = cloud.client("sqs")
        self._lambda = cloud.client("lambda")
        self.function = name
        self.queue_url = self.dead_letter_url = self.mapping = None
        # messageId → the key of the sent message. Some log lines have no key.
        self._keys = {}
        self._before = cloud.function_processes()

    # ---- setup ----

    def make_queues(self, fifo=False, visibility=120, receives=1000):
        kind = {"FifoQueue": "true"} if fifo else {}
        suffix = ".fifo" if fifo else ""
        dead = self._sqs.create_queue(QueueName=f"{self.function}-dead{suffix}", Attributes=kind)
        self.dead_letter_url = dead["QueueUrl"]
        redrive = {"deadLetterTargetArn": self._arn(self.dead_letter_url), "maxReceiveCount": receives}
        attributes = {**kind, "VisibilityTimeout": str(visibility), "RedrivePolicy": json.dumps(redrive)}
        made = self._sqs.create_queue(QueueName=f"{self.function}-messages{suffix}", Attributes=attributes)
        self.queue_url = made["QueueUrl"]

    def make_function(self, timeout, settings):
        self._lambda.create_function(
            FunctionName=self.function,
            Runtime="provided.al2023",
            Handler="bootstrap",
            Role="arn:aws:iam::000000000000:role/function",
            Code={"ZipFile": self._cloud.package},
            Timeout=timeout,
            Environment={"Variables": {"DEAD_LETTER_QUEUE_URL": self.dead_letter_url, **settings}},
        )

    def make_mapping(self):
        made = self._lambda.create_event_source_mapping(
            FunctionName=self.function,
            EventSourceArn=self._arn(self.queue_url),
            FunctionResponseTypes=["ReportBatchItemFailures"],
            BatchSize=10,
        )
        self.mapping = made["UUID"]

    def delete(self):
        """Deletes the resources that exist. The function's processes end with it."""
        if self.mapping:
            self._lambda.delete_event_source_mapping(UUID=self.mapping)
        try:
            self._lambda.delete_function(FunctionName=self.function)
        except self._lambda.exceptions.ResourceNotFoundException:
            pass
        for url in filter(None, (self.queue_url, self.dead_letter_url)):
            self._sqs.delete_queue(QueueUrl=url)

    def _arn(self, url):
        said = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return said["Attributes"]["QueueArn"]

    # ---- actions ----

    def send(self, *messages):
        """Sends with the mapping disabled, so that up to ten messages arrive in one batch.

        ministack can also lose a message that is sent while it deletes another.
        """
        self._lambda.update_event_source_mapping(UUID=self.mapping, Enabled=False)
        for first in range(0, len(messages), MAX_BATCH):
            batch = messages[first : first + MAX_BATCH]
            entries = [message.entry(number) for number, message in enumerate(batch)]
            answer = self._sqs.send_message_batch(QueueUrl=self.queue_url, Entries=entries)
            if answer.get("Failed"):
                raise Failed(f"not sent: {answer['Failed']}")
            self._keys |= {sent["MessageId"]: batch[int(sent["Id"])].key for sent in answer["Successful"]}
        self._lambda.update_event_source_mapping(UUID=self.mapping, Enabled=True)

    def left(self, url):
        """The number of messages in a queue: visible, in flight and delayed."""
        names = [f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed")]
        said = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
        return sum(int(said["Attributes"][name]) for name in names)

    def wait_until_done(self, seconds, dead_letters=0):
        """Waits until the queue is empty and the dead-letter queue has the expected number of messages."""

        def done():
            return self.left(self.queue_url) == 0 and self.left(self.dead_letter_url) == dead_letters

        try:
            self._cloud.wait_for(done, seconds, "an empty queue")
        except Failed as late:
            left, dead = self.left(self.queue_url), self.left(self.dead_letter_url)
            raise Failed(f"{late}: {left} messages in the queue, {dead} dead letters, expected 0 and {dead_letters}") from None

    def letters(self, *arguments):
        """Runs the operator's tool on the dead-letter queue, and returns its JSON document."""
        command = [self._cloud.letters, *arguments, "--queue-url", self.dead_letter_url, "--json"]
        ran = subprocess.run(command, env=self._cloud.tool_environment(), capture_output=True, text=True, timeout=60)
        if ran.returncode:
            raise Failed(f"letters {arguments}: {ran.stdout}{ran.stderr}")
        return json.loads(ran.stdout)

    def dead_letters(self):
        """The dead letters by key, each as its description, its body and its other attributes. They stay in the queue."""
        names = {"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["All"], "MaxNumberOfMessages": 10}
        received = self._sqs.receive_message(QueueUrl=self.dead_letter_url, VisibilityTimeout=0, **names)
        found = {}
        for message in received.get("Messages", []):
            attributes = message["MessageAttributes"]
            letter = json.loads(attributes.pop(LETTER)["StringValue"])
            found[letter["key"]] = letter | {"body": message["Body"], "attributes": attributes}
        return found

    def redrive(self):
        """Sends each dead letter to its queue again, with the mapping disabled, as `send` does."""
        self._lambda.update_event_source_mapping(UUID=self.mapping, Enabled=False)
        self.letters("redrive", "--all", "--yes")
        self._lambda.update_event_source_mapping(UUID=self.mapping, Enabled=True)

    # ---- observations ----

    def last_batch_failed(self):
        said = self._lambda.get_event_source_mapping(UUID=self.mapping)
        return said["LastProcessingResult"] == "FAILED"

    def kill_function(self):
        """Sends SIGKILL to the function's only process."""
        mine = self._cloud.function_processes() - self._before
        if len(mine) != 1:
            raise Failed(f"{len(mine)} processes of the function; expected: 1")
        kill(*mine)

    def lines(self):
        """The log lines on messages in CloudWatch Logs, in order."""
        config = self._lambda.get_function_configuration(FunctionName=self.function)
        # Without a LogGroup in the template, ministack omits it.
        group = config.get("LoggingConfig", {}).get("LogGroup", f"/aws/lambda/{self.function}")
        logs = self._cloud.client("logs").get_paginator("filter_log_events")
        try:
            pages = list(logs.paginate(logGroupName=group))
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return []
            raise
        events = sorted((event for page in pages for event in page["events"]), key=lambda event: event["timestamp"])
        said = [{**as_json(event["message"]).get("fields", {}), "ms": event["timestamp"]} for event in events]
        return [line for line in said if "outcome" in line]

    def outcomes(self):
        """Key → its outcomes, in order. Messages without a key are under None."""
        found = {}
        for line in self.lines():
            # A redriven message has a new messageId.
            key = self._keys.get(line["message_id"], line.get("idempotency_key"))
            found.setdefault(key, []).append(line["outcome"])
        return found

    def print_outcomes(self, receiver):
        """Prints one row for all keys with the same outcomes, calls and effects."""
        rows = {}
        for key, outcomes in self.outcomes().items():
            calls = len(receiver.calls_for(key))
            effects = len([call for call in receiver.effects if call.key == key])
            rows.setdefault((" → ".join(outcomes), calls, effects), []).append(key or "none")
        cells = [(named(sorted(keys)), calls, effects, outcomes) for (outcomes, calls, effects), keys in rows.items()]
        print_table(["key", "calls", "effects", "outcomes"], cells)


def named(keys):
    return keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"


def as_json(line):
    try:
        parsed = json.loads(line)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
