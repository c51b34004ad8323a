"""Which limit a growing rate meets first, and what a sudden rate does while Lambda adds pollers."""

import math
from collections import namedtuple

from figures import (
    BATCH_CONCURRENCY, EVENT_BYTES_PER_MESSAGE, IDLE_POLLERS, MAXIMUM_CONCURRENCY, RECORD_BYTES, limit,
)
from model import (
    batch_ms, concurrency, fleet, largest_batch, messages_per_batch, messages_per_second, own_node, usable_bytes,
)

# What a resource carries at most in messages a second, and what to do then.
Ceiling = namedtuple("Ceiling", "resource rate remedy")


def capacity(load, concurrent):
    """Messages a second of so many concurrent invocations with full batches."""
    messages = largest_batch(load)
    return concurrent * messages / batch_ms(load, messages) * 1000


def ceilings(load):
    """The limits of the profile's fleet with full batches of this size, lowest first."""
    return sorted([*redis_ceilings(load), *lambda_ceilings(load), *sqs_ceilings(load)], key=lambda row: row.rate)


def redis_ceilings(load):
    own, node = fleet(load), own_node(load)
    if node is None:
        return
    memory = own.shards * usable_bytes(node) / (RECORD_BYTES * load.retention_days * 86400)
    yield Ceiling(f"memory of a {node.type}, {load.retention_days} d", memory,
                  "a shorter retention, larger nodes, or more shards")
    claimed = min(largest_batch(load), BATCH_CONCURRENCY)
    yield Ceiling("command thread of the primary", messages_per_second(node, own.shards, claimed),
                  "more shards; above cache.m7g.large, a larger node does not help")
    if own.durability == "sync":
        written = own.shards * limit("bytes a second that a durable primary writes")
        yield Ceiling("writes of a durable primary, two for each record", written / (2 * RECORD_BYTES), "more shards")
    yield Ceiling("connections of a node", capacity(load, limit("connections of a node")),
                  "larger batches: an environment has one connection to each node")


def lambda_ceilings(load):
    account = limit("concurrent invocations of an account, by default")
    calls = account * limit("invocations a second for each concurrent one of the account")
    mapping = limit("concurrent invocations of an event source mapping")
    yield Ceiling(f"`MaximumConcurrency` of {MAXIMUM_CONCURRENCY}", capacity(load, MAXIMUM_CONCURRENCY),
                  "raise it to what the receiver can take")
    yield Ceiling("invocations a second of an account", calls * largest_batch(load),
                  "larger batches, or a higher quota")
    yield Ceiling("concurrency of an account", capacity(load, account), "request a higher quota")
    yield Ceiling("concurrency of a mapping", capacity(load, mapping), "several queues, or provisioned mode")


def sqs_ceilings(load):
    call = limit("messages of a receive or delete call")
    seconds = batch_ms(load, largest_batch(load)) / 1000
    # The template's FIFO queue has high throughput.
    yield Ceiling("a FIFO queue", call * limit("calls a second of a FIFO queue at high throughput, in us-east-1"),
                  "several queues")
    yield Ceiling("messages in flight of a queue", limit("messages in flight of a queue") / seconds, "several queues")


def in_flight(load):
    """Messages of batches that are being filled or processed. A batch is full before its window ends if it can be."""
    filling_s = min(load.window_s, IDLE_POLLERS * messages_per_batch(load) / load.rate)
    return load.rate * filling_s + concurrency(load) * messages_per_batch(load)


def queues(load):
    """Standard queues, each with an event source mapping, that the rate needs."""
    return max(
        math.ceil(in_flight(load) / limit("messages in flight of a queue")),
        math.ceil(concurrency(load) / limit("concurrent invocations of an event source mapping")),
        1,
    )


def poller_rate(load):
    """Messages a second of a poller in provisioned mode: by its invocations, its receive calls, and 1 MB a second."""
    return min(
        capacity(load, limit("concurrent invocations of a provisioned poller")),
        limit("receive calls a second of a provisioned poller") * limit("messages of a receive or delete call"),
        1e6 / (EVENT_BYTES_PER_MESSAGE + load.body_bytes),
    )


def pollers(load):
    """Pollers in provisioned mode that carry the rate. None if Lambda does not keep so many."""
    needed = max(limit("provisioned pollers, at least"), math.ceil(load.rate / poller_rate(load)))
    most = limit("provisioned pollers that are always kept, at most") * queues(load)
    return needed if needed <= most else None


# What happens after a rate starts at once: `peak_backlog` in messages, `oldest_s` the highest age of the oldest message
# that waits, `drained_s` the time until none waits, or None if that takes longer than a day.
Ramp = namedtuple("Ramp", "peak_backlog oldest_s drained_s")


def ramp(rate, worker_rate, start, per_minute, most):
    """Simulates a queue, second by second: messages arrive at `rate` and are processed in order, `worker_rate` a second
    by each worker. The number of workers grows evenly from `start` to `most` while messages wait."""
    arrived = done = peak = oldest = 0
    workers = start
    for second in range(1, 86401):
        arrived += rate
        done = min(arrived, done + workers * worker_rate)
        peak = max(peak, arrived - done)
        # The oldest message that waits arrived when `done` messages had arrived.
        oldest = max(oldest, second - done / rate)
        if arrived - done < 1:
            return Ramp(peak, oldest, second)
        workers = min(most, workers + per_minute / 60)
    return Ramp(peak, oldest, None)


def standard_ramp(load):
    """The ramp of one of the queues. A worker is a concurrent invocation."""
    return ramp(
        load.rate / queues(load),
        capacity(load, 1),
        limit("concurrent invocations at the start"),
        limit("concurrent invocations added a minute"),
        limit("concurrent invocations of an event source mapping"),
    )


def provisioned_ramp(load):
    """The same in provisioned mode, from the fewest pollers. A worker is a poller."""
    return ramp(
        load.rate / queues(load),
        poller_rate(load),
        limit("provisioned pollers, at least"),
        limit("the same in provisioned mode") / limit("concurrent invocations of a provisioned poller"),
        limit("provisioned pollers, at most"),
    )
