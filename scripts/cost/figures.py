"""Every constant of `make cost`: measured figures, assumptions, prices and limits.

Prices are list prices of us-east-1 (N. Virginia) in USD, without free tiers, reserved nodes and Savings Plans.
"""

from collections import namedtuple

# ---- measured: docs/bench.md. Replace these when it is measured again. ----

# CPU of the Redis process for a new message, claim and completion, all messages of a batch at once and without TLS.
REDIS_MICROS = [
    # (shards of a cluster, or 0 without cluster mode; batch; µs a message)
    (0, 10, 6.41),
    (0, 100, 5.17),
    (0, 1000, 4.38),
    (1, 10, 7.76),
    (1, 100, 5.45),
    (1, 1000, 5.56),
    (3, 10, 13.3),
    (3, 100, 6.88),
    (3, 1000, 5.77),
]
# CPU of the function for a new message whose work does nothing, on an x86 vCPU: (batch, µs a message).
FUNCTION_MICROS = [(10, 11.2), (100, 5.79), (1000, 4.94)]
# Memory of a completed record with a UUID as its key and a result of 24 bytes.
RECORD_BYTES = 213
# The log lines and sample events of `make run`: a line of a message, and a message in an event without its body.
LOG_BYTES_PER_MESSAGE = 633
EVENT_BYTES_PER_MESSAGE = 1034
# Arguments and replies of the two script calls of a new message.
REDIS_BYTES_SENT, REDIS_BYTES_RECEIVED = 220, 45
# Records in one script run.
RECORDS_PER_RUN = 64

# ---- assumed ----

# Share of the command thread, and of a node's memory, that is planned for. docs/sizing.md explains the memory.
CPU_SHARE, MEMORY_SHARE = 0.55, 0.5
# Time of a call of Redis: from Lambda in a VPC, and if Redis waits for the logs of two zones.
ROUND_TRIP_MS = {"disabled": 1, "async": 1, "sync": 3}
# Requests of the webhook beside the body, and its responses, with TLS.
REQUEST_BYTES, RESPONSE_BYTES = 800, 400
# An invocation's metrics document with a batch of ten, and Lambda's own lines. CloudWatch adds 26 bytes to each line.
LOG_BYTES_PER_INVOCATION, LOG_LINE_OVERHEAD = 2500, 26
# Lambda polls an idle queue with this many long polls of this time.
IDLE_POLLERS, LONG_POLL_SECONDS = 5, 20
# The defaults of template.yaml.
BATCH_CONCURRENCY, MAXIMUM_CONCURRENCY = 16, 10
# The metrics that the function always publishes: docs/metrics.md.
CUSTOM_METRICS = 16
# Memory for a full vCPU of Lambda.
VCPU_MB = 1769

HOURS = 730
SECONDS = HOURS * 3600

# ---- prices ----

# No price was read from AWS itself. These are the sources, all copies of what AWS publishes:
PAGE = "copy of AWS's Lambda pricing page, 2026"
LIST = "AWS Price List API as others recorded it in 2026"
GUIDES = "two or more pricing guides of others, 2025 and 2026"
GUIDE = "one pricing guide of others, June 2026"

# USD of a unit. `tiers` has lower prices, each for what exceeds a quantity in a month.
Price = namedtuple("Price", "usd unit source tiers", defaults=[()])

PRICES = {
    "Lambda, arm64": Price(0.0000133334, "GB-second", PAGE),
    "Lambda, x86_64": Price(0.0000166667, "GB-second", PAGE),
    "Lambda requests": Price(0.20, "million", PAGE),
    "event pollers of provisioned mode": Price(0.00925, "poller and hour", PAGE),
    "SQS requests of a standard queue": Price(0.40, "million, 64 KiB each", GUIDES, ((100_000, 0.30), (200_000, 0.24))),
    "durability by sync": Price(0.18, "USD of the node's price", LIST),
    "ElastiCache Serverless storage": Price(0.084, "GB and hour, at least 0.1 GB", GUIDE),
    "ElastiCache Serverless units": Price(0.0023, "million", GUIDE),
    "NAT gateway": Price(0.045, "hour", GUIDES),
    "NAT gateway data": Price(0.045, "GB", GUIDES),
    "public IPv4 address": Price(0.005, "hour", GUIDES),
    "interface endpoint": Price(0.01, "zone and hour", LIST),
    "data between zones": Price(0.01, "GB, each direction", GUIDES),
    "data to the internet": Price(
        0.09, "GB", f"{GUIDES}; lower prices from memory", ((10_000, 0.085), (50_000, 0.07), (150_000, 0.05))
    ),
    "logs": Price(0.50, "GB", GUIDES, ((10_000, 0.25), (30_000, 0.10), (50_000, 0.05))),
    "log storage": Price(0.03, "GB and month", GUIDES),
    "alarms": Price(0.10, "metric of an alarm and month", GUIDES),
    "custom metrics": Price(0.30, "metric and month", GUIDES),
    "dashboards": Price(3.00, "month", GUIDES),
}

# `thread`: the share of a vCPU that the node's command thread may use all the time. A burstable node may use more only
# while it has CPU credits. `durable`: whether durability supports the type.
Node = namedtuple("Node", "type usd_per_hour gib thread durable")

# Prices of Valkey: LIST. CPU credits, and memory of t4g: a copy of AWS documentation. Memory of m7g and r7g: a list of
# others, except that of the 16xlarge, which is from memory.
NODES = [
    Node("cache.t4g.micro", 0.0128, 0.5, 0.2, False),
    Node("cache.t4g.small", 0.0256, 1.37, 0.4, False),
    Node("cache.t4g.medium", 0.052, 3.09, 0.4, False),
    Node("cache.m7g.large", 0.1264, 6.38, 1, True),
    Node("cache.m7g.xlarge", 0.252, 12.93, 1, True),
    Node("cache.r7g.large", 0.1752, 13.07, 1, True),
    Node("cache.r7g.xlarge", 0.3496, 26.32, 1, True),
    Node("cache.r7g.2xlarge", 0.6984, 52.82, 1, True),
    Node("cache.r7g.4xlarge", 1.396, 105.81, 1, True),
    Node("cache.r7g.16xlarge", 5.5848, 419.09, 1, True),
]

# ---- fleets: what template.yaml deploys with these parameters. tests/template/cost.py compares them with it. ----

Fleet = namedtuple("Fleet", "parameters node shards copies durability nat_gateways endpoint_zones alarm_metrics")

FLEETS = {
    "dev": Fleet({"Profile": "dev"}, "cache.t4g.micro", 1, 1, "disabled", 1, 0, 17),
    "dev-ipv6": Fleet({"Profile": "dev", "Egress": "ipv6"}, "cache.t4g.micro", 1, 1, "disabled", 0, 0, 17),
    "standard": Fleet({}, "cache.t4g.small", 1, 2, "disabled", 1, 0, 20),
    "standard-endpoint": Fleet({"Egress": "endpoint"}, "cache.t4g.small", 1, 2, "disabled", 0, 2, 20),
    "durable": Fleet({"Profile": "durable"}, "cache.m7g.large", 1, 2, "sync", 1, 0, 20),
    "serverless": Fleet({"CacheNodeType": "serverless"}, None, 0, 0, "disabled", 1, 0, 17),
}

# ---- limits of AWS documentation ----

DOCS = "https://docs.aws.amazon.com"
LAMBDA, LAMBDA_API = f"{DOCS}/lambda/latest/dg", f"{DOCS}/lambda/latest/api"
SQS, CACHE = f"{DOCS}/AWSSimpleQueueService/latest/SQSDeveloperGuide", f"{DOCS}/AmazonElastiCache/latest/dg"

# name: (value, page). Names are shown on the page.
LIMITS = {
    "concurrent invocations of an account, by default": (1000, f"{LAMBDA}/gettingstarted-limits.html"),
    "invocations a second for each concurrent one of the account": (10, f"{LAMBDA}/lambda-concurrency.html"),
    "bytes of an event": (6 * 1024 * 1024, f"{LAMBDA}/gettingstarted-limits.html"),
    "concurrent invocations of an event source mapping": (1250, f"{LAMBDA}/services-sqs-scaling.html"),
    "concurrent invocations at the start": (5, f"{LAMBDA}/services-sqs-scaling.html"),
    "concurrent invocations added a minute": (300, f"{LAMBDA}/services-sqs-scaling.html"),
    "the same in provisioned mode": (1000, f"{LAMBDA}/services-sqs-scaling.html"),
    "concurrent invocations of a provisioned poller": (10, f"{LAMBDA}/services-sqs-scaling.html"),
    "receive calls a second of a provisioned poller": (10, f"{LAMBDA}/services-sqs-scaling.html"),
    "provisioned pollers that are always kept, at most": (200, f"{LAMBDA_API}/API_ProvisionedPollerConfig.html"),
    "provisioned pollers, at least": (2, f"{LAMBDA_API}/API_ProvisionedPollerConfig.html"),
    "provisioned pollers, at most": (10000, f"{LAMBDA_API}/API_ProvisionedPollerConfig.html"),
    "messages in flight of a queue": (120000, f"{SQS}/quotas-queues.html"),
    "messages of a receive or delete call": (10, f"{SQS}/quotas-messages.html"),
    "calls a second of a FIFO queue at high throughput, in us-east-1": (70000, f"{SQS}/quotas-messages.html"),
    "nodes of a cluster, by request": (500, f"{CACHE}/Shards.html"),
    "nodes of a cluster, by default": (90, f"{CACHE}/Shards.html"),
    "connections of a node": (65000, f"{CACHE}/BestPractices.Clients.Redis.Connections.html"),
    "bytes a second that a durable primary writes": (100 * 1024 * 1024, f"{CACHE}/Durability.Limitations.html"),
}


def limit(name):
    return LIMITS[name][0]
