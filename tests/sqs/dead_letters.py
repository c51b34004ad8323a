"""Dead-letter queues and redrives."""

import json
import time

from rule import API, GUIDE, SHORT, bodies, outcome, pause, rule, saw

LETTERS = GUIDE + "sqs-dead-letter-queues.html"
RETENTION = GUIDE + "setting-up-dead-letter-queue-retention.html"
REDRIVE = GUIDE + "sqs-configure-dead-letter-queue-redrive.html"


def with_letters(sqs, receives, fifo=False, retention=345600, visibility=0):
    """A queue, and its dead-letter queue."""
    dead = sqs.make(fifo=fifo, VisibilityTimeout=visibility, MessageRetentionPeriod=retention)
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": receives})
    return sqs.make(fifo=fifo, VisibilityTimeout=visibility, RedrivePolicy=policy), dead


def move(queue):
    """Receives until the message is in the dead-letter queue. Returns the last delivery."""
    last = None
    while received := queue.receive():
        last = received[0]
    return last


@rule(
    API + "CreateQueue.html",
    "When the ReceiveCount for a message exceeds the maxReceiveCount for a queue, Amazon SQS moves the message",
    "a, a, none, a, same id",
)
def a_message_received_too_often_is_moved(sqs):
    queue, dead = with_letters(sqs, 2)
    sent = queue.send()
    received = [queue.receive() for _ in range(3)]
    letter = dead.receive()
    same = letter and letter[0]["MessageId"] == sent["MessageId"]
    return saw(*map(bodies, received), bodies(letter), "same id" if same else "new id")


@rule(
    API + "ReceiveMessage.html",
    "the number of times a message has been received across all queues but not deleted",
    "2, the source's ARN",
)
def a_dead_letter_keeps_its_receive_count_and_names_its_source(sqs):
    queue, dead = with_letters(sqs, 1)
    queue.send()
    move(queue)
    attributes = dead.receive()[0]["Attributes"]
    source = attributes.get("DeadLetterQueueSourceArn")
    return saw(attributes["ApproximateReceiveCount"], "the source's ARN" if source == queue.arn else f"{source}")


def letter_after_its_retention(sqs, fifo):
    """A dead letter at 70 seconds of age, 30 of them in a dead-letter queue with a retention of 60 seconds."""
    queue, dead = with_letters(sqs, 1, fifo, retention=60, visibility=SHORT)
    queue.send(**({"group": "g", "id": "d"} if fifo else {}))
    queue.receive()
    time.sleep(40)
    moved = queue.receive()
    time.sleep(30)
    return saw(bodies(moved), bodies(dead.receive()))


@rule(
    RETENTION,
    "For standard queues, the expiration of a message is always based on its original enqueue timestamp",
    "none, none",
)
def the_retention_of_a_dead_letter_counts_from_its_send(sqs):
    return letter_after_its_retention(sqs, fifo=False)


@rule(RETENTION, "For FIFO queues, the enqueue timestamp resets when the message is moved to a dead-letter queue", "none, a")
def the_retention_of_a_fifo_dead_letter_counts_from_its_move(sqs):
    return letter_after_its_retention(sqs, fifo=True)


@rule(REDRIVE, "the original message's deduplication ID will be replaced with the original message's ID", "the messageId")
def a_fifo_dead_letter_has_its_message_id_as_its_deduplication_id(sqs):
    queue, dead = with_letters(sqs, 1, fifo=True)
    queue.send(group="g", id="d")
    move(queue)
    letter = dead.receive()[0]
    id = letter["Attributes"]["MessageDeduplicationId"]
    return "the messageId" if id == letter["MessageId"] else id


@rule(
    LETTERS,
    "Don't use a dead-letter queue with a FIFO queue if you don't want to break the exact order",
    "a1, a2",
    "a1, none, a2",
)
def a_fifo_dead_letter_does_not_hold_back_its_group(sqs):
    queue, _ = with_letters(sqs, 1, fifo=True)
    for body in ("a1", "a2"):
        queue.send(body, group="a", id=body)
    first, second = queue.receive(most=1), queue.receive(most=1)
    return saw(bodies(first), bodies(second)) if second else saw(bodies(first), "none", bodies(queue.receive(most=1)))


def redrive(dead, queue):
    dead.client.start_message_move_task(SourceArn=dead.arn, DestinationArn=queue.arn)


@rule(
    REDRIVE, "All redriven messages are considered new messages with a new messageID and enqueueTime", "accepted, a, new id, 1"
)
def a_redrive_makes_new_messages(sqs):
    queue, dead = with_letters(sqs, 1)
    sent = queue.send()
    move(queue)
    done = outcome(redrive, dead, queue)
    pause()
    received = queue.receive()[0]
    id = "same id" if received["MessageId"] == sent["MessageId"] else "new id"
    return saw(done, received["Body"], id, received["Attributes"]["ApproximateReceiveCount"])


@rule(REDRIVE, "you can also configure any other queue as the redrive destination if both queues are the same type", "refused")
def a_redrive_to_a_queue_of_another_type_is_refused(sqs):
    _, dead = with_letters(sqs, 1)
    return outcome(redrive, dead, sqs.make(fifo=True))
