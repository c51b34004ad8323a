"""Permanent failures, an outage of the webhook, a killed function and a Redis outage."""

from consumer import Message
from fixture import TIMEOUT, expect
from receiver import CUT, Answer
from servers import free_port, start_redis

REFUSED = Answer(422)


def a_poison_message_is_a_dead_letter_at_once_and_is_processed_after_a_redrive(fixture):
    consumer = fixture.consumer()
    fixture.receiver.answer("pay_poison", REFUSED)
    attributes = {
        "Tenant": {"DataType": "String", "StringValue": "größe"},
        "Amount": {"DataType": "Number", "StringValue": "12.50"},
        "Image": {"DataType": "Binary", "BinaryValue": b"\x00\x9f\xff"},
    }
    poison = Message("pay_poison", "not JSON: ü", attributes=attributes)
    consumer.send(Message("pay_a"), poison, Message("pay_b"))
    consumer.wait_until_done(TIMEOUT, dead_letters=1)
    fixture.effects("pay_a", "pay_b")
    expect("the calls for pay_poison", len(fixture.receiver.calls_for("pay_poison")), 1)
    letter = consumer.dead_letters()["pay_poison"]
    expect("its outcome and reason", (letter["outcome"], letter["reason"]), ("FAILED_PERMANENTLY", "failed permanently: the webhook returned 422"))
    expect("its body and attributes", (letter["body"], letter["attributes"]), (poison.body, poison.entry(0)["MessageAttributes"]))
    # Now the webhook accepts pay_poison.
    consumer.redrive()
    consumer.wait_until_done(TIMEOUT)
    consumer.send(poison)
    consumer.wait_until_done(TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects("pay_a", "pay_b", "pay_poison")
    expect("the outcomes of pay_poison", consumer.outcomes()["pay_poison"], ["ACQUIRED", "ACQUIRED", "DUPLICATE"])


def a_message_without_a_key_or_with_another_payload_is_a_dead_letter_and_never_runs(fixture):
    consumer = fixture.consumer()
    consumer.send(Message("pay_a"))
    consumer.wait_until_done(TIMEOUT)
    consumer.send(Message("pay_a", '{"paymentId": "pay_a", "amount": 1}'), Message(None), Message("pay_b"))
    consumer.wait_until_done(TIMEOUT, dead_letters=2)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects("pay_a", "pay_b")
    expect("the calls", len(fixture.receiver.calls), 2)
    expected = {"pay_a": ["ACQUIRED", "MISMATCH"], None: ["NO_KEY"], "pay_b": ["ACQUIRED"]}
    expect("the outcomes", consumer.outcomes(), expected)
    letters = {key: letter["outcome"] for key, letter in consumer.dead_letters().items()}
    expect("the dead letters", letters, {"pay_a": "MISMATCH", None: "NO_KEY"})


def a_receiver_that_is_down_for_a_minute_causes_no_dead_letter(fixture):
    consumer = fixture.consumer()
    keys = [f"pay_{number}" for number in range(70)]
    fixture.receiver.fail_for(60)
    consumer.send(*map(Message, keys))
    # The wait that began last is at most 64 s.
    consumer.wait_until_done(60 + 64 + TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects(*keys)
    calls = [len(fixture.receiver.calls_for(key)) for key in keys]
    print(f"  {sum(calls)} calls, at most {max(calls)} for a message")
    expect("a message with more than 7 calls", max(calls) > 7, False)
    expect("the attempts", {call.attempt for call in fixture.receiver.calls}, {1})


def a_recovery_finishes_the_work_of_a_killed_function(fixture):
    # The visibility timeout is longer than the lease of 3 s and its grace.
    consumer = fixture.consumer(timeout=3, visibility=6)
    fixture.receiver.answer("pay_killed", CUT)
    hold = fixture.receiver.hold("pay_killed")
    consumer.send(Message("pay_killed"))
    fixture.wait_for(hold.reached.is_set, "a call of the webhook")
    consumer.kill_function()
    fixture.wait_for(consumer.last_batch_failed, "the failure of the invocation")
    hold.released.set()
    consumer.wait_until_done(TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects("pay_killed")
    first, second = fixture.receiver.calls
    expect("the attempts and the recovery flags", [first[3:], second[3:]], [(1, False), (2, True)])
    expect("a greater fence", second.fence > first.fence, True)
    # The first attempt was killed before it logged an outcome.
    expect("the outcomes", consumer.outcomes(), {"pay_killed": ["ACQUIRED_STALE"]})


def nothing_is_lost_or_repeated_when_redis_goes_down_and_comes_back(fixture):
    port, folder = free_port(), fixture.folder()
    redis = start_redis(folder, port, appendonly="yes")
    fixture.cleanup(lambda: redis.stop())
    # Each invocation ends within its timeout; the messages are redelivered after this visibility timeout.
    consumer = fixture.consumer(timeout=3, visibility=5, receives=20, REDIS_URL=f"redis://127.0.0.1:{port}")
    before, meanwhile = ["pay_a", "pay_b", "pay_c"], ["pay_d", "pay_e", "pay_f"]
    consumer.send(*map(Message, before))
    consumer.wait_until_done(TIMEOUT)
    redis.stop()
    consumer.send(*map(Message, [*before, *meanwhile]))
    fixture.wait_for(consumer.last_batch_failed, "the failure of an invocation")
    fixture.effects(*before)
    redis = start_redis(folder, port, appendonly="yes")
    consumer.wait_until_done(TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects(*before, *meanwhile)
    expect("the calls", len(fixture.receiver.calls), 6)
    # How many deliveries fail depends on how long Redis takes to start.
    outage = ["UNAVAILABLE", "NOT_PROCESSED"]
    outcomes = consumer.outcomes()
    expect("the keys with a delivery that failed", sorted(key for key, got in outcomes.items() if set(got) & set(outage)),
           before + meanwhile)
    with_redis = {key: [outcome for outcome in got if outcome not in outage] for key, got in outcomes.items()}
    expected = {key: ["ACQUIRED", "DUPLICATE"] for key in before} | {key: ["ACQUIRED"] for key in meanwhile}
    expect("the outcomes with Redis", with_redis, expected)


SCENARIOS = [
    a_poison_message_is_a_dead_letter_at_once_and_is_processed_after_a_redrive,
    a_message_without_a_key_or_with_another_payload_is_a_dead_letter_and_never_runs,
    a_receiver_that_is_down_for_a_minute_causes_no_dead_letter,
    a_recovery_finishes_the_work_of_a_killed_function,
    nothing_is_lost_or_repeated_when_redis_goes_down_and_comes_back,
]
