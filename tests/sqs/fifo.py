"""Order, groups and deduplication of FIFO queues."""

import hashlib
import time

from rule import API, GUIDE, SHORT, bodies, outcome, pause, rule, saw

LOGIC = GUIDE + "FIFO-queues-understanding-logic.html"
FIVE_MINUTES = 300


def filled(sqs, *messages, **attributes):
    """A FIFO queue with these messages, each in the group of its first letter."""
    queue = sqs.make(fifo=True, **attributes)
    for body in messages:
        queue.send(body, group=body[0], id=body)
    return queue


@rule(LOGIC, "received and processed in the exact order they were transmitted", "a1 a2 a3")
def a_group_is_received_in_order(sqs):
    return bodies(filled(sqs, "a1", "a2", "a3").receive())


@rule(
    API + "SendMessageBatch.html", "multiple messages within a single batch are enqueued in the order they are sent", "0 1 2 3"
)
def a_batch_is_enqueued_in_order(sqs):
    queue = sqs.make(fifo=True)
    entry = lambda n: {"Id": str(n), "MessageBody": str(n), "MessageGroupId": "g", "MessageDeduplicationId": str(n)}
    queue.send_batch(*map(entry, range(4)))
    return bodies(queue.receive())


@rule(
    API + "ReceiveMessage.html",
    "While messages with a particular MessageGroupId are invisible, no more messages belonging to the same MessageGroupId are returned",
    "a1, b1, none",
)
def a_message_in_flight_blocks_the_later_messages_of_its_group(sqs):
    queue = filled(sqs, "a1", "a2", "b1")
    first = queue.receive(most=1)
    # The first of the two groups may be either.
    second = queue.receive()
    return saw(*sorted((bodies(first), bodies(second))), bodies(queue.receive())).replace("a1 a2", "a1")


@rule(LOGIC, "unless you delete the message or it becomes visible", "a1 a2, none, a3")
def a_group_is_blocked_until_each_received_message_is_deleted(sqs):
    queue = filled(sqs, "a1", "a2", "a3")
    received = queue.receive(most=2)
    queue.delete(received[0])
    second = queue.receive()
    queue.delete(received[1])
    return saw(bodies(received), bodies(second), bodies(queue.receive()))


@rule(LOGIC, "unless you delete the message or it becomes visible", "a1, none", "none, none")
def an_earlier_message_is_visible_while_a_later_one_is_in_flight(sqs):
    queue = filled(sqs, "a1", "a2", "a3")
    queue.change(queue.receive(most=2)[0], 0)
    return saw(bodies(queue.receive()), bodies(queue.receive()))


@rule(LOGIC, "received and processed in the exact order they were transmitted", "none, a1 a2 a3")
def a_later_message_is_visible_while_an_earlier_one_is_in_flight(sqs):
    queue = filled(sqs, "a1", "a2", "a3", VisibilityTimeout=SHORT)
    queue.change(queue.receive(most=2)[1], 0)
    second = queue.receive()
    pause()
    return saw(bodies(second), bodies(queue.receive()))


@rule(LOGIC, "received and processed in the exact order they were transmitted", "a1, a1 a2")
def a_message_that_is_visible_again_is_received_before_later_ones(sqs):
    queue = filled(sqs, "a1", "a2", VisibilityTimeout=SHORT)
    first = queue.receive(most=1)
    pause()
    return saw(bodies(first), bodies(queue.receive()))


@rule(
    API + "ReceiveMessage.html",
    "if a consumer whose message processing time is longer than the visibility timeout tries to delete the processed messages, "
    "the action fails with an error",
    "refused, a1, refused, accepted",
)
def a_receipt_handle_whose_visibility_timeout_has_ended_deletes_nothing(sqs):
    queue = filled(sqs, "a1", VisibilityTimeout=SHORT)
    old = queue.receive()[0]
    pause()
    expired = outcome(queue.delete, old)
    last = queue.receive(visibility=30)
    if not last:
        return saw(expired, "none")
    return saw(expired, bodies(last), outcome(queue.delete, old), outcome(queue.delete, last[0]))


@rule(
    API + "SendMessage.html",
    "The large, non-consecutive number […] continues to increase for a particular MessageGroupId",
    "increasing",
)
def sequence_numbers_increase(sqs):
    received = filled(sqs, "a1", "a2", "a3").receive()
    numbers = [int(message["Attributes"]["SequenceNumber"]) for message in received]
    return "increasing" if numbers == sorted(set(numbers)) else "not increasing"


@rule(
    API + "SendMessage.html",
    "messages sent with the same MessageDeduplicationId are accepted successfully but aren't delivered",
    "accepted, a1",
)
def a_repeated_deduplication_id_is_not_delivered(sqs):
    queue = filled(sqs, "a1")
    return saw(outcome(queue.send, "other", group="a", id="a1"), bodies(queue.receive()))


@rule(API + "SendMessage.html", "silent on the messageId of a duplicate", "same", "new")
def the_message_id_of_a_duplicate(sqs):
    queue = sqs.make(fifo=True)
    first, second = (queue.send(group="g", id="d")["MessageId"] for _ in range(2))
    return "same" if first == second else "new"


@rule(
    API + "SendMessage.html",
    "keep track of the message deduplication ID even after the message is received and deleted",
    "none",
)
def a_deduplication_id_outlives_its_message(sqs):
    queue = filled(sqs, "a1")
    queue.delete(queue.receive()[0])
    queue.send("a1", group="a", id="a1")
    return bodies(queue.receive())


@rule(API + "SendMessage.html", "aren't delivered during the 5-minute deduplication interval", "none, late")
def a_deduplication_id_can_be_used_again_after_five_minutes(sqs):
    queue = filled(sqs, "a1")
    start = time.monotonic()
    queue.delete(queue.receive()[0])
    time.sleep(FIVE_MINUTES - 15)
    queue.send("early", group="a", id="a1")
    early = queue.receive()
    time.sleep(start + FIVE_MINUTES + 3 - time.monotonic())
    queue.send("late", group="a", id="a1")
    return saw(bodies(early), bodies(queue.receive()))


@rule(
    API + "CreateQueue.html",
    "DeduplicationScope: whether message deduplication occurs at the message group or queue level",
    "1",
)
def by_default_an_id_is_deduplicated_across_groups(sqs):
    queue = sqs.make(fifo=True)
    queue.send("a", group="a", id="1")
    queue.send("b", group="b", id="1")
    return len(queue.receive())


@rule(
    API + "CreateQueue.html",
    "DeduplicationScope: whether message deduplication occurs at the message group or queue level",
    "2, 2",
)
def within_message_groups_an_id_of_another_group_is_another_message(sqs):
    def received(scope):
        queue = sqs.make(fifo=True, DeduplicationScope="messageGroup", **scope)
        for group in ("a", "b", "a"):
            queue.send(group, group=group, id="1")
        return len(queue.receive())

    return saw(received({}), received({"FifoThroughputLimit": "perMessageGroupId"}))


@rule(
    API + "SendMessage.html",
    "a SHA-256 hash […] using the body of the message (but not the attributes of the message)",
    "1, the hash",
)
def content_based_deduplication_uses_the_body(sqs):
    queue = sqs.make(fifo=True, ContentBasedDeduplication="true")
    for value in ("1", "2"):
        queue.send("a", group="g", attributes={"key": {"DataType": "String", "StringValue": value}})
    received = queue.receive()
    is_hash = received[0]["Attributes"].get("MessageDeduplicationId") == hashlib.sha256(b"a").hexdigest()
    return saw(len(received), "the hash" if is_hash else "no hash")


@rule(API + "SendMessage.html", "your MessageDeduplicationId overrides the generated one", "2")
def an_id_overrides_the_hash_of_the_content(sqs):
    queue = sqs.make(fifo=True, ContentBasedDeduplication="true")
    for id in ("1", "2"):
        queue.send("a", group="g", id=id)
    return len(queue.receive())


@rule(
    API + "SendMessage.html",
    "with a MessageDeduplicationId that is the same as the one generated […] treated as duplicates",
    "1",
)
def an_id_that_equals_the_hash_is_a_duplicate(sqs):
    queue = sqs.make(fifo=True, ContentBasedDeduplication="true")
    queue.send("a", group="g")
    queue.send("b", group="g", id=hashlib.sha256(b"a").hexdigest())
    return len(queue.receive())


@rule(API + "SendMessage.html", "the action fails", "refused, refused")
def a_message_needs_a_group_and_an_id(sqs):
    queue = sqs.make(fifo=True)
    return saw(outcome(queue.send, id="d"), outcome(queue.send, group="g"))


@rule(
    API + "SendMessage.html",
    "The maximum length […] is 128 characters. […] alphanumeric characters (a-z, A-Z, 0-9) and punctuation",
    "accepted, refused, refused, refused, refused",
)
def ids_have_up_to_128_letters_digits_and_punctuation(sqs):
    queue = sqs.make(fifo=True)
    good = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~aZ9"
    pairs = ((good, good), ("a b", "d"), ("g", "a b"), ("g" * 129, "d"), ("g", "d" * 129))
    return saw(*(outcome(queue.send, group=group, id=id) for group, id in pairs))


@rule(API + "SendMessage.html", "When you set FifoQueue, you can't set DelaySeconds per message", "refused, accepted, none, a")
def only_the_queue_delays_fifo_messages(sqs):
    queue = sqs.make(fifo=True, DelaySeconds=SHORT)
    own, zero = (outcome(queue.send, group="g", id="d", delay=delay) for delay in (1, 0))
    first = queue.receive()
    pause()
    return saw(own, zero, bodies(first), bodies(queue.receive()))
