"""Deliveries, redeliveries and conflicts on a standard queue."""

from consumer import Message
from fixture import TIMEOUT, expect
from receiver import Answer

BUSY = Answer(503, retry_after=2)


def each_message_takes_effect_once(fixture):
    consumer = fixture.consumer()
    keys = [f"pay_{number:02}" for number in range(60)]
    sent = [Message(key) for key in keys]
    consumer.send(*sent)
    consumer.wait_until_done(TIMEOUT)
    # ministack deletes the messages of a batch before it has stored its log.
    fixture.wait_for(lambda: len(consumer.outcomes()) == len(keys), "a log line for each message")
    consumer.print_outcomes(fixture.receiver)
    fixture.effects(*keys)
    expect("the outcomes", consumer.outcomes(), dict.fromkeys(sorted(keys), ["ACQUIRED"]))
    bodies = {call.key: call.body for call in fixture.receiver.effects}
    expect("the bodies", bodies, {message.key: message.body for message in sent})


def a_duplicate_is_acknowledged_without_running_the_work(fixture):
    consumer = fixture.consumer()
    keys = ["pay_a", "pay_b", "pay_c"]
    consumer.send(*map(Message, keys))
    consumer.wait_until_done(TIMEOUT)
    consumer.send(*map(Message, [*keys, "pay_twice", "pay_twice"]))
    consumer.wait_until_done(TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects(*keys, "pay_twice")
    expected = {key: ["ACQUIRED", "DUPLICATE"] for key in keys} | {"pay_twice": ["ACQUIRED", "IN_BATCH_DUPLICATE"]}
    expect("the outcomes", consumer.outcomes(), expected)


def only_the_failed_message_is_redelivered_at_the_requested_time(fixture):
    consumer = fixture.consumer()
    keys = [f"pay_{number}" for number in range(9)]
    fixture.receiver.answer("pay_busy", BUSY)
    consumer.send(*map(Message, [*keys, "pay_busy"]))
    consumer.wait_until_done(TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects(*keys, "pay_busy")
    expect("the outcomes", consumer.outcomes(), {key: ["ACQUIRED"] for key in keys} | {"pay_busy": ["ACQUIRED"] * 2})
    attempts = [(call.attempt, call.recovery) for call in fixture.receiver.calls_for("pay_busy")]
    expect("the attempts and the recovery flags", attempts, [(1, False)] * 2)
    redelivered_after_visibility(consumer, "pay_busy")


def a_message_in_conflict_is_redelivered_after_the_lease_ends(fixture):
    consumer = fixture.consumer(timeout=5)
    hold = fixture.receiver.hold("pay_slow")
    consumer.send(Message("pay_slow"))
    fixture.wait_for(hold.reached.is_set, "a call of the webhook")
    consumer.send(Message("pay_slow"))
    fixture.wait_for(lambda: consumer.outcomes().get("pay_slow") == ["CONFLICT"], "a conflict")
    hold.released.set()
    consumer.wait_until_done(TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects("pay_slow")
    expect("the calls", len(fixture.receiver.calls), 1)
    expect("the outcomes", consumer.outcomes(), {"pay_slow": ["CONFLICT", "ACQUIRED", "DUPLICATE"]})
    redelivered_after_visibility(consumer, "pay_slow")


def redelivered_after_visibility(consumer, key):
    """The message was redelivered no sooner than requested."""
    lines = [line for line in consumer.lines() if line.get("idempotency_key") == key]
    [left] = [line for line in lines if line["disposition"] == "redeliver"]
    [again] = [line for line in lines if line["message_id"] == left["message_id"] and line["receive_count"] == 2]
    waited, asked = (again["ms"] - left["ms"]) / 1000, left["retry_after_s"]
    print(f"  {key}: requested visibility timeout {asked:.0f} s, redelivered after {waited:.2f} s")
    # The log line is written at the end of the invocation, shortly after the request.
    expect("a redelivery no sooner than requested", asked > 0 and waited > asked - 1, True)


SCENARIOS = [
    each_message_takes_effect_once,
    a_duplicate_is_acknowledged_without_running_the_work,
    only_the_failed_message_is_redelivered_at_the_requested_time,
    a_message_in_conflict_is_redelivered_after_the_lease_ends,
]
