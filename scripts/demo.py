"""`make run`: sends the sample events to the function, and shows what becomes of each message.

Everything runs on this machine: a private Valkey or Redis, a webhook, as much of SQS as the
function calls, and the function itself under Lambda's local emulator, `cargo lambda watch`.
It ends with an error, and says what differed, unless all is exactly as story.py tells it.
"""

import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import show
import story
import tools
from play import EVENTS, Play, records
from processes import Failed, end_on_signals, ignore_signals
from stage import FUNCTION, LOG, start_emulator, start_redis
from standins import StandIns


def main():
    end_on_signals()
    tools.TOOLS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=tools.TOOLS))
    ends = ExitStack()
    ends.callback(shutil.rmtree, folder, ignore_errors=True)
    try:
        build()
        play = start(folder, ends)
        tell(play)
        play.verdict()
        return 0
    except (Failed, tools.Missing) as failed:
        show.error(failed)
        show_end_of_log()
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        ignore_signals()
        ends.close()


def show_end_of_log():
    if LOG.exists():
        last = LOG.read_text(errors="replace").splitlines()[-20:]
        print(f"\nthe end of {LOG.relative_to(tools.ROOT)}:", *last, sep="\n  ", file=sys.stderr)


def build():
    """Beforehand, so that a compile error is seen as one, and no wait has to allow for it."""
    LOG.unlink(missing_ok=True)
    if subprocess.run(["cargo", "build", "--bin", FUNCTION], cwd=tools.ROOT).returncode:
        raise Failed("the function does not compile")


def start(folder, ends):
    server = tools.find_server()
    stand_ins = StandIns()
    ends.callback(stand_ins.stop)
    redis_port = start_redis(server, folder, ends)
    emulator, port = start_emulator(redis_port, stand_ins.url, ends)
    show.line()
    show.line(f"{Path(server).name} {tools.major_version(server)}, a webhook, and the function under cargo lambda watch")
    return Play(folder, stand_ins, emulator, port)


def tell(play):
    play.step(story.FIRST)
    play.step(story.REDELIVERY)
    tell_conflict(play)
    play.step(story.FIFO)
    play.step(story.REDRIVE)
    play.step(story.SNS)
    play.step(story.EVENTBRIDGE)


def tell_conflict(play):
    """A real conflict: the record's owner is in the middle of its work while mixed.json arrives."""
    record = next(record for record in records(EVENTS / "mixed.json") if story.IN_CONFLICT in record["body"])
    slow = play.write(story.SLOW, record, messageId="5bd1a8f2-6f0c-4f8e-9a53-0d6a4c2f7e11")
    afterwards = play.write(story.AFTERWARDS, record, receive_count=2)
    hold = play.stand_ins.hold(story.IN_CONFLICT)
    try:
        invocation = play.invoke(slow)
        play.wait_for_call(hold, invocation)
        play.step(story.MIXED)
    finally:
        hold.released.set()
    play.step(story.SLOW, slow, invocation)
    play.step(story.AFTERWARDS, afterwards)


if __name__ == "__main__":
    sys.exit(main())
