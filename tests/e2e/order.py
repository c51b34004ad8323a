"""FIFO queues: order within a group when one of its messages fails."""

from consumer import Message
from fixture import TIMEOUT, expect
from receiver import Answer

# Nine messages, delivered in one batch.
GROUPS = {group: [f"pay_{group}{number}" for number in (1, 2, 3)] for group in ("a", "b", "c")}


def a_fifo_group_waits_for_its_failed_message_while_other_groups_go_on(fixture):
    consumer = fixture.consumer(fifo=True)
    fixture.receiver.answer("pay_a2", Answer(409, retry_after=2))
    send_interleaved(consumer)
    consumer.wait_until_done(TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects(*all_keys())
    in_order(fixture)
    expect("the attempts of pay_a2, without the 409", attempts(fixture, "pay_a2"), [1, 1])
    expect("the outcomes of pay_a3", consumer.outcomes()["pay_a3"], ["NOT_PROCESSED", "ACQUIRED"])
    keys = [call.key for call in fixture.receiver.effects]
    expect("the last to take effect", keys[-2:], GROUPS["a"][1:])


def a_poison_fifo_message_is_a_dead_letter_at_once_and_its_group_goes_on(fixture):
    consumer = fixture.consumer(fifo=True)
    fixture.receiver.answer("pay_b2", Answer(422))
    send_interleaved(consumer)
    consumer.wait_until_done(TIMEOUT, dead_letters=1)
    fixture.effects(*[key for key in all_keys() if key != "pay_b2"])
    expect("the outcomes of pay_b3", consumer.outcomes()["pay_b3"], ["ACQUIRED"])
    expect("the dead letters", {key: one["outcome"] for key, one in consumer.dead_letters().items()}, {"pay_b2": "FAILED_PERMANENTLY"})
    # Now the webhook accepts pay_b2.
    consumer.redrive()
    consumer.wait_until_done(TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects(*all_keys())
    expect("the attempts of pay_b2", attempts(fixture, "pay_b2"), [1, 2])


def send_interleaved(consumer):
    """a1, b1, c1, a2, …"""
    consumer.send(*[Message(key, group=group) for turn in zip(*GROUPS.values()) for group, key in zip(GROUPS, turn)])


def all_keys():
    return [key for keys in GROUPS.values() for key in keys]


def attempts(fixture, key):
    return [call.attempt for call in fixture.receiver.calls_for(key)]


def in_order(fixture):
    for group, keys in GROUPS.items():
        order = [call.key for call in fixture.receiver.effects if call.key in keys]
        expect(f"the order of group {group}", order, keys)


SCENARIOS = [
    a_fifo_group_waits_for_its_failed_message_while_other_groups_go_on,
    a_poison_fifo_message_is_a_dead_letter_at_once_and_its_group_goes_on,
]
