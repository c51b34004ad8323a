//! Metrics of an invocation, in CloudWatch's Embedded Metric Format.

mod runs;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;
use serde_json::Value;

use super::dead_letters::QUEUE;
use super::{Fixture, NO_FAILURES, pay};
use harness::event::{Record, event};
use harness::http::Answer;
use harness::lambda::Function;
use harness::redis::Redis;
use harness::until;

/// Enables metrics.
const NAMESPACE: (&str, &str) = ("METRICS_NAMESPACE", "idempotent-sqs");

/// Metrics of every document.
const ALWAYS: [&str; 11] = [
    "BatchSize",
    "Acquired",
    "AcquiredStale",
    "Duplicate",
    "Conflict",
    "Mismatch",
    "Failed",
    "Lost",
    "Done",
    "Redeliver",
    "DeadLetters",
];

/// A document that is valid by the specification:
/// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>
struct Document(Value);

impl Document {
    fn read(line: &str) -> Self {
        assert!(line.len() < 16_384, "longer than 16 KiB: {}", line.len());
        let document: Value = serde_json::from_str(line).expect("the line is a JSON document");
        let aws = &document["_aws"];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.abs_diff(Duration::from_millis(
            aws["Timestamp"].as_u64().expect("the timestamp is in whole milliseconds"),
        ));
        assert!(age < Duration::from_secs(300), "{age:?}");

        let [directive] = aws["CloudWatchMetrics"].as_array().unwrap().as_slice() else { panic!("{aws}") };
        assert_eq!(directive["Namespace"], NAMESPACE.1);
        assert_eq!(directive["Dimensions"], serde_json::json!([["Consumer"]]));
        assert_eq!(document["Consumer"], "payments");
        let metrics = directive["Metrics"].as_array().unwrap();
        assert!((1..=100).contains(&metrics.len()));
        let defined: BTreeSet<_> = metrics.iter().map(|metric| metric["Name"].as_str().unwrap()).collect();
        assert_eq!(defined.len(), metrics.len(), "a metric has several definitions");
        for metric in metrics {
            assert!(["Count", "Milliseconds"].contains(&metric["Unit"].as_str().unwrap()), "{metric}");
        }
        let valued: BTreeSet<_> = document.as_object().unwrap().keys().map(String::as_str).collect();
        let valued: BTreeSet<_> =
            valued.into_iter().filter(|name| !["_aws", "Consumer", "RequestId"].contains(name)).collect();
        assert_eq!(defined, valued, "each metric has a value and each value a metric");
        let document = Self(document.clone());
        assert!(defined.iter().all(|name| (1..=100).contains(&document.values(name).len())), "{line}");
        assert!(ALWAYS.iter().all(|name| defined.contains(name)), "{line}");
        document
    }

    /// Values of the metric, each with its count.
    fn values(&self, metric: &str) -> Vec<(f64, u64)> {
        let value = &self.0[metric];
        if let Some(one) = value.as_f64() {
            return vec![(one, 1)];
        }
        let (values, counts) = (value["Values"].as_array(), value["Counts"].as_array());
        let (values, counts) = (values.expect("a number or values"), counts.expect("values have counts"));
        assert_eq!(values.len(), counts.len());
        values
            .iter()
            .map(|value| value.as_f64().unwrap())
            .zip(counts.iter().map(|count| count.as_u64().unwrap()))
            .collect()
    }

    /// Number of values of the metric; 0 if the document does not have it.
    fn samples(&self, metric: &str) -> u64 {
        if self.0[metric].is_null() { 0 } else { self.values(metric).iter().map(|(_, count)| count).sum() }
    }

    /// Counts other than 0, by name.
    fn counts(&self) -> Vec<(&str, u64)> {
        let names = ALWAYS.into_iter().chain([
            "NoKey",
            "InBatchDuplicate",
            "Unprocessed",
            "Unavailable",
            "Foreign",
            "Unreadable",
        ]);
        let counts = names.filter_map(|name| Some((name, self.0[name].as_u64()?)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// The document with this number, starting at 1.
async fn document(function: &Function, number: usize) -> Document {
    Document::read(&function.documents(number).await[number - 1])
}

#[tokio::test]
async fn an_invocation_prints_one_document_with_its_outcomes_and_latencies() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[NAMESPACE]).await;
    let delivered = || event([pay("m1", "pay_1"), pay("m2", "pay_2")]);
    assert_eq!(function.answer(delivered()).await, NO_FAILURES);
    let first = document(&function, 1).await;
    assert_eq!(first.counts(), [("BatchSize", 2), ("Acquired", 2), ("Done", 2)]);
    assert_eq!(first.values("Attempts"), [(1.0, 2)]);
    // An acquire and a complete for each message.
    assert_eq!(["RedisLatency", "WorkLatency", "LeaseRemaining"].map(|metric| first.samples(metric)), [4, 2, 2]);
    // At most the 20 seconds of an invocation and 1 second of grace.
    let all_within = |metric, range: std::ops::RangeInclusive<f64>| {
        first.values(metric).iter().all(|(value, _)| range.contains(value))
    };
    assert!(all_within("LeaseRemaining", 1_000.0..=21_000.0), "{:?}", first.0);
    assert!(all_within("RedisLatency", 0.01..=20_000.0), "{:?}", first.0);
    assert_eq!(first.0["RequestId"], "request-0");

    assert_eq!(function.answer(delivered()).await, NO_FAILURES);
    let second = document(&function, 2).await;
    assert_eq!(second.counts(), [("BatchSize", 2), ("Duplicate", 2), ("Done", 2)]);
    assert_eq!(["Attempts", "RedisLatency", "WorkLatency"].map(|metric| second.samples(metric)), [0, 2, 0]);
    assert_eq!(function.documents(2).await.len(), 2);
}

#[tokio::test]
async fn a_failure_is_counted_by_its_outcome_and_as_failed_if_permanent() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("refused", Answer::status(500));
    fixture.webhook.respond_for("hopeless", Answer::status(400));
    fixture.webhook.respond_for("cut", Answer::Reset);
    let function = fixture.function_with(&[NAMESPACE]).await;
    let delivered = || event(["refused", "hopeless", "cut", "good"].map(|key| pay(key, key)));
    assert_eq!(function.invoke(delivered()).await.len(), 3);
    let first = document(&function, 1).await;
    assert_eq!(first.counts(), [("BatchSize", 4), ("Acquired", 4), ("Failed", 1), ("Done", 1), ("Redeliver", 3)]);
    assert_eq!(first.samples("LeaseRemaining"), 4);

    assert_eq!(function.invoke(delivered()).await.len(), 3);
    let second = document(&function, 2).await;
    assert_eq!(
        second.counts(),
        [("BatchSize", 4), ("AcquiredStale", 2), ("Duplicate", 1), ("Failed", 1), ("Done", 1), ("Redeliver", 3),]
    );
    assert_eq!(second.values("Attempts"), [(2.0, 2)]);
}

#[tokio::test]
async fn conflicts_mismatches_and_missing_keys_are_counted() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("held", Answer::Held);
    let (owner, other) = (fixture.function().await, fixture.function_with(&[NAMESPACE]).await);
    let in_progress = owner.begin(event([pay("m1", "held")]), Duration::from_secs(60));
    fixture.webhook.called(1).await;
    let delivered = event([
        pay("m1", "held"),
        pay("m2", "pay_2"),
        pay("m3", "pay_2"),
        pay("m4", "pay_2").body("another"),
        Record::new("m5").key(""),
    ]);
    let failed = other.invoke(delivered).await;
    assert_eq!(failed.len(), 3, "{failed:?}");
    let document = document(&other, 1).await;
    assert_eq!(document.0["BatchSize"], 5);
    for (outcome, count) in [("NoKey", 1), ("InBatchDuplicate", 1), ("Done", 2), ("Redeliver", 3)] {
        assert_eq!(document.0[outcome], count, "{outcome}");
    }
    // The other payload finds a lease, or a completion if the first was quick.
    assert_eq!(document.0["Mismatch"].as_u64().unwrap() + document.0["Conflict"].as_u64().unwrap(), 2);
    fixture.webhook.respond_for("held", Answer::status(200));
    assert_eq!(in_progress.answer().await, NO_FAILURES);
}

#[tokio::test]
async fn dead_letters_are_counted_by_their_outcome() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond_for("hopeless", Answer::status(400));
    let function = fixture.function_with(&[NAMESPACE, QUEUE]).await;
    let delivered = event([pay("m1", "hopeless"), Record::new("m2").key(""), Record::new("m3").key("")]);
    assert_eq!(function.answer(delivered).await, NO_FAILURES);
    let document = document(&function, 1).await;
    for (metric, count) in [("DeadLetters", 3), ("DeadLettersFailedPermanently", 1), ("DeadLettersNoKey", 2)] {
        assert_eq!(document.0[metric], count, "{metric}");
    }
}

#[tokio::test]
async fn a_letter_that_is_not_sent_is_counted_whatever_the_reason() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[NAMESPACE, QUEUE]).await;
    assert_eq!(function.invoke(event([pay("m1", "pay_1").without("body")])).await, ["m1"]);
    fixture.sqs.refuse_sends(true);
    assert_eq!(function.invoke(event([Record::new("m2").key("")])).await, ["m2"]);
    for number in [1, 2] {
        let document = document(&function, number).await;
        assert_eq!((&document.0["DeadLettersNotSent"], &document.0["Redeliver"]), (&1.into(), &1.into()));
    }
}

#[tokio::test]
async fn a_claim_taken_over_by_another_owner_is_counted_as_lost() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::Held);
    let (owner, other) = (fixture.function_with(&[NAMESPACE]).await, fixture.function_with(&[NAMESPACE]).await);
    let delivered = || event([pay("m1", "pay_1")]);
    let loser = owner.begin(delivered(), Duration::from_secs(60));
    fixture.webhook.called(1).await;
    let () = fixture.redis.connection().await.del("payments:pay_1").await.unwrap();
    let new_owner = other.begin(delivered(), Duration::from_secs(60));
    fixture.webhook.called(2).await;
    fixture.webhook.respond(Answer::status(200));
    assert_eq!(new_owner.answer().await, NO_FAILURES);
    loser.outcome().await.unwrap();
    let lost = document(&owner, 1).await;
    assert_eq!((&lost.0["Lost"], &lost.0["Acquired"]), (&1.into(), &0.into()));
    assert_eq!(lost.samples("LeaseRemaining"), 0, "it was not settled");
    assert_eq!(document(&other, 1).await.counts(), [("BatchSize", 1), ("Acquired", 1), ("Done", 1)]);
}

#[tokio::test]
async fn a_large_batch_is_one_document_with_every_sample() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[NAMESPACE, ("BATCH_CONCURRENCY", "50")]).await;
    let records = (0..300).map(|n| pay(&format!("m{n}"), &format!("pay_{n}")));
    assert_eq!(function.answer(event(records)).await, NO_FAILURES);
    let document = document(&function, 1).await;
    assert_eq!(document.counts(), [("BatchSize", 300), ("Acquired", 300), ("Done", 300)]);
    assert_eq!(document.values("Attempts"), [(1.0, 300)]);
    let samples = ["RedisLatency", "WorkLatency", "LeaseRemaining"].map(|metric| document.samples(metric));
    assert_eq!(samples, [600, 300, 300]);
    assert_eq!(function.documents(1).await.len(), 1);
}

#[tokio::test]
async fn a_failed_invocation_prints_a_document_too() {
    let mut fixture = Fixture::start().await;
    fixture.redis.kill();
    let function = fixture.function_with(&[NAMESPACE]).await;
    function.error(event([pay("m1", "pay_1"), pay("m2", "pay_2")])).await;
    let document = document(&function, 1).await;
    assert_eq!(document.counts(), [("BatchSize", 2), ("Redeliver", 2), ("Unavailable", 2)]);
    assert!(document.samples("RedisLatency") > 0, "failed calls have a latency");
    assert_eq!(document.samples("CheckFindings"), 0, "the server was not checked");
}

#[tokio::test]
async fn every_document_after_the_server_check_has_the_number_of_findings() {
    let unsafe_server = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]).await;
    for (redis, findings) in [(unsafe_server, 2), (Redis::start_with(&["--appendonly", "yes"]).await, 0)] {
        let fixture = Fixture { redis, ..Fixture::start().await };
        let function = fixture.function_with(&[NAMESPACE]).await;
        let mut documents = 0;
        until(|| {
            documents += 1;
            let function = &function;
            async move {
                assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
                document(function, documents).await.samples("CheckFindings") > 0
            }
        })
        .await;
        for number in documents..documents + 2 {
            assert_eq!(document(&function, number).await.0["CheckFindings"], findings);
            assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
        }
    }
}

#[tokio::test]
async fn without_a_namespace_no_metrics_are_printed() {
    let fixture = Fixture::start().await;
    let function = fixture.function_with(&[("METRICS_NAMESPACE", "")]).await;
    assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
    let log = function.logs("ACQUIRED").await;
    assert!(!log.iter().any(|line| line.contains("_aws")), "{log:#?}");
}
