"""Receives, visibility timeouts, receipt handles, deletes and delays of standard queues."""

import threading
import time

from rule import API, GUIDE, SHORT, bodies, outcome, pause, rule, saw

VISIBILITY = GUIDE + "sqs-visibility-timeout.html"


@rule(VISIBILITY, "the message becomes visible again in the queue and can be retrieved by another consumer", "a, none, a")
def a_message_is_hidden_for_its_visibility_timeout(sqs):
    queue = sqs.make(VisibilityTimeout=SHORT)
    queue.send()
    first, second = queue.receive(), queue.receive()
    pause()
    return saw(bodies(first), bodies(second), bodies(queue.receive()))


@rule(
    API + "ReceiveMessage.html", "the number of times a message has been received across all queues but not deleted", "1, 2, 3"
)
def each_receive_counts(sqs):
    queue = sqs.make(VisibilityTimeout=0)
    queue.send()
    return saw(*(queue.receive()[0]["Attributes"]["ApproximateReceiveCount"] for _ in range(3)))


@rule(API + "Message.html", "A new receipt handle is returned every time you receive a message", "2 handles, 1 id")
def each_receive_has_its_own_receipt_handle(sqs):
    queue = sqs.make(VisibilityTimeout=0)
    queue.send()
    received = queue.receive() + queue.receive()
    count = lambda name: len({message[name] for message in received})
    return saw(f"{count('ReceiptHandle')} handles", f"{count('MessageId')} id")


@rule(
    API + "ReceiveMessage.html",
    "The parameter is applied to the messages that Amazon SQS returns in the response",
    "a, none, a",
)
def a_receive_may_have_its_own_visibility_timeout(sqs):
    queue = sqs.make(VisibilityTimeout=0)
    queue.send()
    first = queue.receive(visibility=SHORT)
    second = queue.receive()
    pause()
    return saw(bodies(first), bodies(second), bodies(queue.receive()))


@rule(
    API + "ReceiveMessage.html",
    "Amazon SQS never returns more messages than this value (however, fewer messages might be returned). Valid values: 1 to 10",
    "10, 2, refused, refused",
)
def a_receive_returns_at_most_ten_messages(sqs):
    queue = sqs.make()
    for _ in range(12):
        queue.send()
    first, second = queue.receive(), queue.receive()
    return saw(len(first), len(second), outcome(queue.receive, most=11), outcome(queue.receive, most=0))


@rule(
    API + "CreateQueue.html",
    "An integer from 60 seconds (1 minute) to 1,209,600 seconds (14 days) […] from 0 to 900 seconds […] from 0 to 43,200",
    "accepted" + 7 * ", refused",
)
def the_times_of_a_queue_are_integers_within_their_limits(sqs):
    bad = [{"MessageRetentionPeriod": time} for time in (59, 1209601)] + [{"DelaySeconds": time} for time in (901, "0.5")]
    bad += [{"VisibilityTimeout": time} for time in (-1, 43201, "1.5")]
    good = {"MessageRetentionPeriod": 60, "DelaySeconds": 900, "VisibilityTimeout": 43200}
    return saw(*(outcome(sqs.make, **attributes) for attributes in (good, *bad)))


@rule(
    API + "CreateQueue.html",
    "The following attributes apply only to FIFO (first-in-first-out) queues […] only to high throughput for FIFO queues",
    "refused, refused",
)
def a_standard_queue_does_not_deduplicate(sqs):
    attributes = ({"ContentBasedDeduplication": "true"}, {"DeduplicationScope": "messageGroup"})
    return saw(*(outcome(sqs.make, **each) for each in attributes))


@rule(
    GUIDE + "best-practices-setting-up-long-polling.html",
    "The maximum long polling wait time is 20 seconds",
    "refused, refused",
)
def a_long_poll_waits_at_most_20_seconds(sqs):
    queue = sqs.make()
    return saw(*(outcome(queue.receive, wait=wait) for wait in (21, -1)))


@rule(
    API + "ReceiveMessage.html",
    "If a message is available, the call returns sooner than WaitTimeSeconds",
    "none after the wait, a within it",
)
def a_long_poll_returns_when_a_message_arrives(sqs):
    queue = sqs.make()
    start = time.monotonic()
    empty = queue.receive(wait=1)
    waited = time.monotonic() - start >= 1
    sender = threading.Timer(1, queue.send)
    sender.start()
    start = time.monotonic()
    received = queue.receive(wait=10)
    sender.join()
    within = time.monotonic() - start < 8
    return saw(
        f"{bodies(empty)} {'after' if waited else 'before'} the wait",
        f"{bodies(received)} {'within' if within else 'after'} it",
    )


@rule(
    API + "ChangeMessageVisibility.html",
    "begin to count from the time that you make the ChangeMessageVisibility call",
    "none, a",
)
def a_changed_visibility_timeout_counts_from_the_call(sqs):
    queue = sqs.make(VisibilityTimeout=60)
    queue.send()
    queue.change(queue.receive()[0], SHORT)
    second = queue.receive()
    pause()
    return saw(bodies(second), bodies(queue.receive()))


@rule(
    API + "ChangeMessageVisibility.html",
    "reverts to the original timeout value the next time the message is received",
    "a, none, a",
)
def a_changed_visibility_timeout_applies_to_one_receive(sqs):
    queue = sqs.make(VisibilityTimeout=SHORT)
    queue.send()
    queue.change(queue.receive()[0], 0)
    second, third = queue.receive(), queue.receive()
    pause()
    return saw(bodies(second), bodies(third), bodies(queue.receive()))


@rule(
    API + "ChangeMessageVisibility.html",
    "a value greater than the maximum time left, Amazon SQS returns an error",
    "refused, refused, accepted",
)
def a_visibility_timeout_ends_within_twelve_hours_of_the_receive(sqs):
    queue = sqs.make()
    queue.send()
    received = queue.receive()[0]
    time.sleep(3)
    change = lambda seconds: outcome(queue.change, received, seconds)
    return saw(change(43201), change(43200), change(43000))


@rule(
    API + "ChangeMessageVisibility.html",
    "any attempt to change the visibility timeout or to delete that message […] might result in an error",
    "accepted",
    "refused",
)
def the_visibility_timeout_of_a_message_that_is_visible_again_is_changed(sqs):
    queue = sqs.make(VisibilityTimeout=1)
    queue.send()
    received = queue.receive()[0]
    pause(1)
    return outcome(queue.change, received, 60)


@rule(API + "ChangeMessageVisibility.html", "MessageNotInflight: The specified message isn't in flight", "refused")
def the_visibility_timeout_of_a_deleted_message_is_changed(sqs):
    queue = sqs.make()
    queue.send()
    received = queue.receive()[0]
    queue.delete(received)
    return outcome(queue.change, received, 60)


@rule(API + "ChangeMessageVisibility.html", "silent on an old receipt handle", "accepted, none", "refused, a", "accepted, a")
def the_visibility_timeout_is_changed_with_an_old_receipt_handle(sqs):
    queue = sqs.make(VisibilityTimeout=SHORT)
    queue.send()
    old = queue.receive()[0]
    pause()
    queue.receive()
    changed = outcome(queue.change, old, 60)
    pause()
    return saw(changed, bodies(queue.receive()))


@rule(API + "DeleteMessage.html", "silent on a second delete", "accepted, accepted, none", "accepted, refused, none")
def a_message_is_deleted_twice(sqs):
    queue = sqs.make(VisibilityTimeout=1)
    queue.send()
    received = queue.receive()[0]
    first, second = outcome(queue.delete, received), outcome(queue.delete, received)
    pause(1)
    return saw(first, second, bodies(queue.receive()))


@rule(
    API + "ChangeMessageVisibility.html",
    "any attempt to change the visibility timeout or to delete that message […] might result in an error",
    "accepted, none",
    "refused, a",
)
def a_message_that_is_visible_again_is_deleted(sqs):
    queue = sqs.make(VisibilityTimeout=1)
    queue.send()
    received = queue.receive()[0]
    pause(1)
    return saw(outcome(queue.delete, received), bodies(queue.receive()))


@rule(
    API + "DeleteMessage.html",
    "If you use an old ReceiptHandle, the request will succeed, but the message might not be deleted",
    "accepted, none",
    "accepted, a",
)
def a_message_is_deleted_with_an_old_receipt_handle(sqs):
    queue = sqs.make(VisibilityTimeout=SHORT)
    queue.send()
    old = queue.receive()[0]
    pause()
    queue.receive()
    deleted = outcome(queue.delete, old)
    pause()
    return saw(deleted, bodies(queue.receive()))


@rule(API + "DeleteMessage.html", "ReceiptHandleIsInvalid: The specified receipt handle isn't valid", "refused, refused")
def an_invented_receipt_handle_is_refused(sqs):
    queue = sqs.make()
    invented = {"ReceiptHandle": "invented"}
    return saw(outcome(queue.delete, invented), outcome(queue.change, invented, 1))


@rule(
    GUIDE + "sqs-message-timers.html",
    "A message timer setting for an individual message overrides any DelaySeconds value on an Amazon SQS delay queue",
    "now, own, 0 1 1",
)
def a_message_is_hidden_for_its_delay(sqs):
    queue = sqs.make(DelaySeconds=30, VisibilityTimeout=60)
    for body, delay in (("queue's", None), ("own", SHORT), ("now", 0)):
        queue.send(body, delay=delay)
    first = queue.receive()
    queue.delete(first[0])
    pause()
    return saw(bodies(first), bodies(queue.receive()), queue.counts())


@rule(API + "SendMessage.html", "Valid values: 0 to 900", "accepted, refused")
def a_delay_is_at_most_15_minutes(sqs):
    queue = sqs.make()
    return saw(outcome(queue.send, delay=900), outcome(queue.send, delay=901))


@rule(
    API + "GetQueueAttributes.html",
    "ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible, ApproximateNumberOfMessagesDelayed",
    "1 1 1",
)
def messages_are_counted_as_visible_in_flight_or_delayed(sqs):
    queue = sqs.make()
    for delay in (0, 0, 60):
        queue.send(delay=delay)
    queue.receive(most=1)
    return queue.counts()


@rule(
    API + "DeleteMessage.html",
    "automatically deletes messages left in a queue longer than the retention period",
    "a, none, 0 0 0",
)
def messages_expire_at_the_end_of_their_retention_also_in_flight(sqs):
    queue = sqs.make(MessageRetentionPeriod=60, VisibilityTimeout=300)
    queue.send()
    received = queue.receive()
    queue.send("b")
    pause(60)
    return saw(bodies(received), bodies(queue.receive()), queue.counts())


@rule(
    API + "SendMessage.html", "Unlike FIFO queues, messages with the same MessageGroupId can be processed in parallel", "1, 1"
)
def a_group_of_a_standard_queue_is_not_held_back(sqs):
    queue = sqs.make()
    for _ in range(2):
        queue.send(group="tenant")
    return saw(len(queue.receive(most=1)), len(queue.receive(most=1)))
