"""What cannot be done, and what breaks."""

from consumer import Message
from processes import free_port
from receiver import CUT, Answer
from scene import SOON, expect
from stage import redis_on
from tools import find_server

REFUSED = Answer(422)


def a_poison_message_ends_in_the_dead_letter_queue_and_is_done_when_redriven(scene):
    consumer = scene.consumer(receives=3)
    scene.receiver.answer("pay_poison", REFUSED)
    consumer.send(*map(Message, ["pay_a", "pay_poison", "pay_b"]))
    consumer.wait_until_done(SOON, dead_letters=1)
    scene.effects("pay_a", "pay_b")
    expect("the calls for pay_poison", len(scene.receiver.calls_for("pay_poison")), 1)
    expect("what became of it", consumer.outcomes()["pay_poison"], ["ACQUIRED", "FAILED", "FAILED"])
    # By now the webhook is mended.
    consumer.redrive()
    consumer.wait_until_done(SOON)
    consumer.send(Message("pay_poison"))
    consumer.wait_until_done(SOON)
    consumer.tell(scene.receiver)
    scene.effects("pay_a", "pay_b", "pay_poison")
    courses = consumer.outcomes()["pay_poison"]
    expect("what became of it", courses, ["ACQUIRED", "FAILED", "FAILED", "ACQUIRED", "DUPLICATE"])


def a_message_without_a_key_or_with_another_payload_is_a_dead_letter_and_never_runs(scene):
    consumer = scene.consumer(receives=2)
    consumer.send(Message("pay_a"))
    consumer.wait_until_done(SOON)
    consumer.send(Message("pay_a", '{"paymentId": "pay_a", "amount": 1}'), Message(None), Message("pay_b"))
    consumer.wait_until_done(SOON, dead_letters=2)
    consumer.tell(scene.receiver)
    scene.effects("pay_a", "pay_b")
    expect("the calls", len(scene.receiver.calls), 2)
    expected = {"pay_a": ["ACQUIRED", "MISMATCH", "MISMATCH"], None: ["NO_KEY"] * 2, "pay_b": ["ACQUIRED"]}
    expect("the outcomes", consumer.outcomes(), expected)


def what_a_killed_function_left_is_done_by_a_recovery(scene):
    # A lease of 3 s and the grace, and then some, before the message comes again.
    consumer = scene.consumer(timeout=3, visibility=6)
    scene.receiver.answer("pay_killed", CUT)
    hold = scene.receiver.hold("pay_killed")
    consumer.send(Message("pay_killed"))
    scene.wait_for(hold.reached.is_set, "a call of the webhook")
    consumer.kill_function()
    scene.wait_for(consumer.last_batch_failed, "the failure of the invocation")
    hold.released.set()
    consumer.wait_until_done(SOON)
    consumer.tell(scene.receiver)
    scene.effects("pay_killed")
    first, second = scene.receiver.calls
    expect("attempts, and whether they recover", [first[3:], second[3:]], [(1, False), (2, True)])
    expect("a fence that grows", second.fence > first.fence, True)
    # The first attempt died before it could say a word.
    expect("the outcomes", consumer.outcomes(), {"pay_killed": ["ACQUIRED_STALE"]})


def redis_goes_down_and_comes_back_and_nothing_is_lost_or_repeated(scene):
    server, port, folder = find_server(), free_port(), scene.folder()
    redis = redis_on(port, server, folder, appendonly="yes")
    scene.at_its_end(lambda: redis.stop())
    # Each try ends within its timeout; then the messages come again after this visibility timeout.
    consumer = scene.consumer(timeout=3, visibility=5, receives=20, REDIS_URL=f"redis://127.0.0.1:{port}")
    before, meanwhile = ["pay_a", "pay_b", "pay_c"], ["pay_d", "pay_e", "pay_f"]
    consumer.send(*map(Message, before))
    consumer.wait_until_done(SOON)
    redis.stop()
    consumer.send(*map(Message, [*before, *meanwhile]))
    scene.wait_for(consumer.last_batch_failed, "the failure of an invocation")
    scene.effects(*before)
    redis = redis_on(port, server, folder, appendonly="yes")
    consumer.wait_until_done(SOON)
    consumer.tell(scene.receiver)
    scene.effects(*before, *meanwhile)
    expect("the calls", len(scene.receiver.calls), 6)
    expected = {key: ["ACQUIRED", "DUPLICATE"] for key in before} | {key: ["ACQUIRED"] for key in meanwhile}
    expect("the outcomes", consumer.outcomes(), expected)


SCENARIOS = [
    a_poison_message_ends_in_the_dead_letter_queue_and_is_done_when_redriven,
    a_message_without_a_key_or_with_another_payload_is_a_dead_letter_and_never_runs,
    what_a_killed_function_left_is_done_by_a_recovery,
    redis_goes_down_and_comes_back_and_nothing_is_lost_or_repeated,
]
