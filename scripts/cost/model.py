"""What a load needs, and what it costs in a month."""

import math
from collections import namedtuple

from figures import (
    BATCH_CONCURRENCY, CPU_SHARE, CUSTOM_METRICS, EVENT_BYTES_PER_MESSAGE, FLEETS, FUNCTION_MICROS, HOURS, IDLE_POLLERS,
    LOG_BYTES_PER_INVOCATION, LOG_BYTES_PER_MESSAGE, LOG_LINE_OVERHEAD, LONG_POLL_SECONDS, MEMORY_SHARE, NODES, PRICES,
    RECORD_BYTES, RECORDS_PER_RUN, REDIS_BYTES_RECEIVED, REDIS_BYTES_SENT, REDIS_MICROS, REQUEST_BYTES, RESPONSE_BYTES,
    ROUND_TRIP_MS, SECONDS, VCPU_MB, limit,
)

# The options of `make cost`, in its units. `rate` is new messages a second.
Load = namedtuple(
    "Load", "rate profile retention_days batch window_s work_ms body_bytes failed_percent memory_mb arch"
)


def load_of(rate, **options):
    """A load with the defaults of template.yaml, except that batches grow with the rate."""
    batch, window = (10, 0) if rate < 10 else (10, 1) if rate < 1000 else (100, 1)
    defaults = dict(
        profile="standard", retention_days=14, batch=batch, window_s=window, work_ms=50, body_bytes=200,
        failed_percent=1, memory_mb=256, arch="arm64",
    )
    return Load(rate, **{**defaults, **options})


def fleet(load):
    return FLEETS[load.profile]


# ---- the function ----


def line(points):
    """The least-squares line through (x, y): its value at 0, and its slope."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - slope * mean_x, slope


def largest_batch(load):
    """The batch size, as far as an event has room for it."""
    room = limit("bytes of an event") // (EVENT_BYTES_PER_MESSAGE + load.body_bytes)
    return max(1, min(load.batch, room))


def messages_per_batch(load):
    """On average. Without a window a message does not wait for others. With one, five pollers share the messages."""
    return min(largest_batch(load), max(1, load.rate * load.window_s / IDLE_POLLERS))


def batch_ms(load, messages):
    """Time of an invocation: claim, work in turns, settle, and the function's CPU at its share of a vCPU."""
    turns = math.ceil(messages / BATCH_CONCURRENCY)
    record, invocation = line([(1 / batch, micros) for batch, micros in FUNCTION_MICROS])
    cpu_ms = (record * messages + invocation) / 1000 / min(1, load.memory_mb / VCPU_MB)
    return 2 * ROUND_TRIP_MS[fleet(load).durability] + turns * load.work_ms + cpu_ms


def deliveries(load):
    """Deliveries a second: a failed one is delivered again, and may fail again."""
    return load.rate / (1 - load.failed_percent / 100)


def invocations(load):
    """Invocations a second."""
    return deliveries(load) / messages_per_batch(load)


def concurrency(load):
    """Concurrent invocations on average."""
    return invocations(load) * batch_ms(load, messages_per_batch(load)) / 1000


# ---- Redis ----


def runs_per_record(messages, shards):
    """A batch is claimed and settled by one script run for each shard that has records of it, or for 64 records."""
    return 2 / min(RECORDS_PER_RUN, max(1, messages / max(1, shards)))


def redis_micros(messages, shards):
    """CPU of Redis for a delivery, from the line through the measured figures of a cluster (or of a single server,
    if `shards` is 0) over the script runs of a record."""
    measured = [
        (runs_per_record(batch, of), micros) for of, batch, micros in REDIS_MICROS if bool(of) == bool(shards)
    ]
    record, run = line(measured)
    return record + run * runs_per_record(messages, shards)


def records(load):
    return load.rate * load.retention_days * 86400


def usable_bytes(node):
    return node.gib * 2**30 * MEMORY_SHARE


def messages_per_second(node, shards, messages):
    """Deliveries a second that the command threads of a cluster carry, with groups of so many messages."""
    return shards * node.thread * CPU_SHARE * 1e6 / redis_micros(messages, shards)


def group(load):
    """Messages of a batch that are claimed together."""
    return min(messages_per_batch(load), BATCH_CONCURRENCY)


def shards_for(load, node):
    """The fewest shards of this node type that hold the records and carry the rate."""
    shards = max(1, math.ceil(records(load) * RECORD_BYTES / usable_bytes(node)))
    while messages_per_second(node, shards, group(load)) < deliveries(load):
        shards += 1
    return shards


def clusters(load, shards):
    """Clusters for so many shards. More than one are several stacks, each with its own queue."""
    return math.ceil(shards * fleet(load).copies / limit("nodes of a cluster, by request"))


def own_node(load):
    """The node type of the profile, or None if its cache is serverless."""
    return next((node for node in NODES if node.type == fleet(load).node), None)


def nodes(load):
    """The node type and the number of shards: those of the profile if they are enough, else the cheapest of those with
    the fewest clusters."""
    if shards_for(load, own_node(load)) <= fleet(load).shards:
        return own_node(load), fleet(load).shards
    allowed = [node for node in NODES if node.durable or fleet(load).durability == "disabled"]
    sizes = [(node, shards_for(load, node)) for node in allowed]
    return min(sizes, key=lambda size: (clusters(load, size[1]), size[0].usd_per_hour * size[1]))


# ---- money ----


def usd(name, quantity):
    """The price of a quantity in a month, in the price's unit, by its tiers."""
    price = PRICES[name]
    starts = [0, *(start for start, _ in price.tiers)]
    ends = [*starts[1:], math.inf]
    rates = [price.usd, *(rate for _, rate in price.tiers)]
    return sum(rate * max(0, min(quantity, end) - start) for start, end, rate in zip(starts, ends, rates))


def sqs_requests(load):
    """Requests a second of the consumer: receives, deletions and changes of visibility. Sending is the producer's."""
    messages, calls = messages_per_batch(load), limit("messages of a receive or delete call")
    chunks = max(1, math.ceil(min(messages, calls) * load.body_bytes / 65536))
    receives = max(invocations(load) * math.ceil(messages / calls) * chunks, IDLE_POLLERS / LONG_POLL_SECONDS)
    deletions = invocations(load) * math.ceil(messages / calls)
    failures = deliveries(load) - load.rate
    return receives + deletions + failures


def cache_lines(load):
    own = fleet(load)
    if own.node is None:
        gb = max(0.1, records(load) * RECORD_BYTES / 1e9)
        yield "ElastiCache Serverless storage", usd("ElastiCache Serverless storage", gb * HOURS)
        # At least one unit for each of the two calls.
        millions = 2 * deliveries(load) * SECONDS / 1e6
        yield "ElastiCache Serverless units, at least", usd("ElastiCache Serverless units", millions)
        return
    node, shards = nodes(load)
    price = node.usd_per_hour * shards * own.copies * HOURS
    yield "Redis nodes", price
    yield "durability by sync", usd("durability by sync", price) if own.durability == "sync" else 0


def network_lines(load):
    own, messages, gb = fleet(load), deliveries(load) * SECONDS, 1e-9
    nat = usd("NAT gateway", HOURS) + usd("public IPv4 address", HOURS)
    yield "NAT gateway and its address", own.nat_gateways * nat
    yield "SQS endpoint", usd("interface endpoint", own.endpoint_zones * HOURS)
    if own.nat_gateways:
        sent, received = (load.body_bytes + REQUEST_BYTES) * messages * gb, RESPONSE_BYTES * messages * gb
        yield "webhook calls by NAT to the internet", (
            usd("NAT gateway data", sent + received) + usd("data to the internet", sent)
        )
    # Half of the function's environments are not in the zone of the primary.
    redis_gb = (REDIS_BYTES_SENT + REDIS_BYTES_RECEIVED) * messages * gb / 2 if own.node else 0
    yield "data to Redis between zones", usd("data between zones", redis_gb)


def watch_lines(load):
    """CloudWatch. Custom metrics are billed for the hours in which they are published."""
    per_message = (LOG_BYTES_PER_MESSAGE + LOG_LINE_OVERHEAD) * deliveries(load)
    gb = (per_message + LOG_BYTES_PER_INVOCATION * invocations(load)) * SECONDS / 1e9
    yield "alarms and dashboard", usd("alarms", fleet(load).alarm_metrics) + usd("dashboards", 1)
    yield "custom metrics", usd("custom metrics", CUSTOM_METRICS if load.rate else 0)
    yield "logs, stored for 30 days", usd("logs", gb) + usd("log storage", gb)


def function_lines(load):
    billed = math.ceil(batch_ms(load, messages_per_batch(load))) / 1000 * load.memory_mb / 1024
    yield "Lambda requests", usd("Lambda requests", invocations(load) * SECONDS / 1e6)
    yield "Lambda time", usd(f"Lambda, {load.arch}", invocations(load) * SECONDS * billed)
    yield "SQS requests of the consumer", usd("SQS requests of a standard queue", sqs_requests(load) * SECONDS / 1e6)


def bill(load):
    """USD a month by line, in a fixed order."""
    return dict(entry for lines in (cache_lines, network_lines, watch_lines, function_lines) for entry in lines(load))
