"""FIFO queues: order within a group, whatever happens to one of its messages."""

from consumer import Message
from receiver import Answer
from scene import SOON, expect

# Nine messages, which come in one batch.
GROUPS = {group: [f"pay_{group}{number}" for number in (1, 2, 3)] for group in ("a", "b", "c")}


def a_fifo_group_waits_for_its_message_that_failed_while_others_go_on(scene):
    consumer = scene.consumer(fifo=True)
    scene.receiver.answer("pay_a2", Answer(503, retry_after=2))
    send_in_turns(consumer)
    consumer.wait_until_done(SOON)
    consumer.tell(scene.receiver)
    scene.effects(*all_keys())
    in_order(scene)
    expect("the attempts at pay_a2, of which a 503 is none", attempts(scene, "pay_a2"), [1, 1])
    expect("what became of pay_a3", consumer.outcomes()["pay_a3"], ["UNPROCESSED", "ACQUIRED"])
    keys = [call.key for call in scene.receiver.effects]
    expect("the last to take effect", keys[-2:], GROUPS["a"][1:])


def a_poisoned_fifo_message_takes_what_waits_behind_it_along_and_a_redrive_keeps_their_order(scene):
    # SQS counts a receive of every message in the batch: of those behind the poison, which may not run, too.
    consumer = scene.consumer(fifo=True, receives=3)
    scene.receiver.answer("pay_b2", Answer(422))
    send_in_turns(consumer)
    consumer.wait_until_done(SOON, dead_letters=2)
    scene.effects(*[key for key in all_keys() if key not in ("pay_b2", "pay_b3")])
    expect("what became of pay_b2", consumer.outcomes()["pay_b2"], ["ACQUIRED", "FAILED", "FAILED"])
    expect("what became of pay_b3", consumer.outcomes()["pay_b3"], ["UNPROCESSED"] * 3)
    # By now the webhook is mended.
    consumer.redrive()
    consumer.wait_until_done(SOON)
    consumer.tell(scene.receiver)
    scene.effects(*all_keys())
    in_order(scene)
    expect("the attempts at pay_b2", attempts(scene, "pay_b2"), [1, 2])


def send_in_turns(consumer):
    """a1, b1, c1, a2, …"""
    consumer.send(*[Message(key, group=group) for turn in zip(*GROUPS.values()) for group, key in zip(GROUPS, turn)])


def all_keys():
    return [key for keys in GROUPS.values() for key in keys]


def attempts(scene, key):
    return [call.attempt for call in scene.receiver.calls_for(key)]


def in_order(scene):
    for group, keys in GROUPS.items():
        came = [call.key for call in scene.receiver.effects if call.key in keys]
        expect(f"the order of group {group}", came, keys)


SCENARIOS = [
    a_fifo_group_waits_for_its_message_that_failed_while_others_go_on,
    a_poisoned_fifo_message_takes_what_waits_behind_it_along_and_a_redrive_keeps_their_order,
]
