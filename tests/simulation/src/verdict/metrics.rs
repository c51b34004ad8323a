//! Whether the metrics of each invocation are those of its log lines, runs and calls: docs/metrics.md.

use std::collections::BTreeMap;

use history::{Answer, Call, Operation};
use serde_json::Value;

use crate::function::{CONSUMER, FINDINGS, Invoked, METRICS_NAMESPACE};
use crate::world::Run;

use super::logs::is_of_message;

/// Outcomes that each document has, with their names in the log.
const ALWAYS: [(&str, &str); 7] = [
    ("ACQUIRED", "Acquired"),
    ("ACQUIRED_STALE", "AcquiredStale"),
    ("DUPLICATE", "Duplicate"),
    ("CONFLICT", "Conflict"),
    ("MISMATCH", "Mismatch"),
    ("FAILED", "Failed"),
    ("LOST", "Lost"),
];

/// Outcomes that a document has if they occur.
const SOMETIMES: [(&str, &str); 6] = [
    ("IN_BATCH_DUPLICATE", "InBatchDuplicate"),
    ("NO_KEY", "NoKey"),
    ("UNREADABLE", "Unreadable"),
    ("UNAVAILABLE", "Unavailable"),
    ("NOT_A_RECORD", "NotARecord"),
    ("NOT_PROCESSED", "NotProcessed"),
];

/// Letters that wait: they are no failure of sending.
const WAITS: [&str; 3] = [
    "another delivery is sending its dead letter",
    "no time was left to send it",
    "the idempotency store is unavailable",
];

/// Metrics that are times or numbers of attempts, and their units.
const DISTRIBUTIONS: [(&str, &str); 4] = [
    ("Attempts", "Count"),
    ("RedisLatency", "Milliseconds"),
    ("WorkLatency", "Milliseconds"),
    ("LeaseRemaining", "Milliseconds"),
];

/// Times are rounded to whole µs, ms. A call that is part of a shared one may begin and end a little later.
const ROUNDING_MS: f64 = 2.5;

/// How many values a metric has, and their sum. `None` if it is not known.
type Expected = (usize, Option<f64>);

impl Run {
    /// What is wrong with the documents that the function printed.
    pub(super) fn wrong_metrics(&self) -> Vec<String> {
        let mut documents: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for document in &self.documents {
            documents.entry(document["RequestId"].as_str().unwrap_or_default()).or_default().push(document);
        }
        let mut wrong = Vec::new();
        for invoked in &self.invocations {
            let own = documents.remove(&*invoked.request_id).unwrap_or_default();
            match own[..] {
                [] if invoked.retained.is_none() && invoked.malformed.has_unnamed => {}
                [document] => {
                    let faults = self.wrong_document(invoked, document).into_iter();
                    wrong.extend(faults.map(|fault| format!("{fault}: {document} of {invoked:?}")));
                }
                _ => wrong.push(format!("{} metrics documents of {invoked:?}", own.len())),
            }
        }
        for invoked in &self.timed_out {
            documents.remove(&*invoked.request_id);
        }
        // A process that was killed has printed the document of its last invocation, or none.
        wrong.extend(documents.into_values().filter(|own| own.len() > 1).map(|own| format!("equal requests: {own:?}")));
        wrong
    }

    fn wrong_document(&self, invoked: &Invoked, document: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        if document["Consumer"] != CONSUMER {
            wrong.push("its consumer".to_owned());
        }
        let counts = self.expected_counts(invoked);
        let named = |name: &str| ["_aws", "Consumer", "RequestId"].contains(&name);
        let values = || document.as_object().into_iter().flatten().filter(|(name, _)| !named(name));
        let is_count = |name: &str| DISTRIBUTIONS.iter().all(|(distribution, _)| *distribution != name);
        let found: BTreeMap<_, _> =
            values().filter(|(name, _)| is_count(name)).map(|(name, value)| (name.as_str(), value.as_f64())).collect();
        let expected: BTreeMap<_, _> = counts.iter().map(|(name, count)| (*name, Some(f64::from(*count)))).collect();
        if found != expected {
            wrong.push(format!("its counts are {expected:?}"));
        }
        for ((name, _), expected) in DISTRIBUTIONS.iter().zip(self.expected_distributions(invoked)) {
            let (count, sum) = distribution(&document[*name]);
            let is_sum = expected.1.is_none_or(|expected| (sum - expected).abs() <= ROUNDING_MS * f64::from(count));
            if usize::try_from(count) != Ok(expected.0) || !is_sum {
                wrong.push(format!("{name} has {expected:?}, not {count} values of {sum}"));
            }
        }
        let directive = &document["_aws"]["CloudWatchMetrics"][0];
        let metrics = directive["Metrics"].as_array().into_iter().flatten();
        let declared: BTreeMap<_, _> =
            metrics.map(|metric| (metric["Name"].as_str(), metric["Unit"].as_str())).collect();
        let unit =
            |name: &str| DISTRIBUTIONS.iter().find(|(other, _)| *other == name).map_or("Count", |(_, unit)| *unit);
        let expected: BTreeMap<_, _> = values().map(|(name, _)| (Some(name.as_str()), Some(unit(name)))).collect();
        if declared != expected
            || directive["Namespace"] != METRICS_NAMESPACE
            || directive["Dimensions"] != serde_json::json!([["Consumer"]])
        {
            wrong.push("its directive".to_owned());
        }
        wrong
    }

    /// The counts of a document, by the lines on its messages.
    fn expected_counts(&self, invoked: &Invoked) -> BTreeMap<&'static str, u32> {
        let number = invoked.number.to_string();
        let is_own = |line: &&harness::lines::Line| is_of_message(line) && line.get("number") == Some(&number);
        let mut counts: BTreeMap<_, _> = ALWAYS.map(|(_, metric)| (metric, 0)).into();
        counts.extend([("Done", 0), ("Redeliver", 0), ("DeadLetters", 0), ("CheckFindings", FINDINGS)]);
        counts.insert("BatchSize", u32::try_from(invoked.messages.len()).unwrap_or(u32::MAX));
        for line in self.lines.iter().filter(is_own) {
            let [outcome, disposition, reason] =
                ["outcome", "disposition", "reason"].map(|field| line.get(field).unwrap_or_default());
            let mut add = |metric| *counts.entry(metric).or_default() += 1;
            let of_outcome = ALWAYS.iter().chain(&SOMETIMES).find(|(name, _)| *name == outcome);
            add(of_outcome.map_or("unknown", |(_, metric)| metric));
            let is_permanent = reason.starts_with("failed permanently") || reason.starts_with("attempts used up");
            if is_permanent && outcome.starts_with("ACQUIRED") {
                add("Failed");
            }
            match disposition {
                "done" => add("Done"),
                "dead_letter" => {
                    add("DeadLetters");
                    add(self.letter_metric(invoked, line.get("message_id").unwrap_or_default(), outcome, reason));
                }
                _ => add("Redeliver"),
            }
            let why_not = reason.split_once("; not moved to the dead-letter queue: ").map(|(_, why)| why);
            if why_not.is_some_and(|why| !WAITS.contains(&why)) {
                add("DeadLettersNotSent");
            }
        }
        counts
    }

    /// The metric of a message that was moved.
    fn letter_metric(&self, invoked: &Invoked, message_id: &str, outcome: &str, reason: &str) -> &'static str {
        match outcome {
            "NO_KEY" => "DeadLettersNoKey",
            "UNREADABLE" => "DeadLettersUnreadable",
            _ if self.has_no_payload(message_id, &invoked.process, invoked.until_us) => "DeadLettersUnreadable",
            "MISMATCH" | "IN_BATCH_DUPLICATE" => "DeadLettersMismatch",
            "FAILED" => "DeadLettersFailed",
            _ if reason.contains(": parked: ") => "DeadLettersParked",
            _ if reason.starts_with("attempts used up") => "DeadLettersAttemptsUsedUp",
            _ => "DeadLettersFailedPermanently",
        }
    }

    /// The values of each of [`DISTRIBUTIONS`], by the runs and calls of the invocation.
    fn expected_distributions(&self, invoked: &Invoked) -> [Expected; 4] {
        let runs: Vec<_> = self.runs_of(invoked).collect();
        let claims = || runs.iter().map(|run| self.acquire_of(&run.key, run.fence).and_then(Operation::acquired));
        let attempts = claims().map(|claim| claim.map(|claim| f64::from(claim.attempt))).sum();
        let work = runs.iter().map(|run| run.returned.map(|_| ms(run.ran_us - run.began_us))).sum();
        let calls = self.calls(invoked);
        let calls: Vec<_> = calls.into_iter().filter(|call| !call.is_of_dead_letter()).collect();
        let steps = steps(&calls);
        let latency = steps.iter().map(|step| self.latency(step)).sum();
        let remaining: Vec<_> = steps.iter().filter_map(|step| lease_remaining(step, &calls)).collect();
        [
            (runs.len(), attempts),
            (steps.len(), latency),
            (runs.len(), work),
            (remaining.len(), remaining.into_iter().sum()),
        ]
    }

    /// The time of an acquire or of the calls that settle a claim, ms. A large result is written before these.
    fn latency(&self, step: &[&Operation]) -> Option<f64> {
        let writes = self.plan.objects.is_some() && matches!(step[0].call, Call::Complete { .. });
        let last = step.last().filter(|_| !writes)?;
        Some(ms(last.returned_us.or(last.failed_us)? - step[0].invoked_us))
    }
}

/// The calls of each acquire, without the release of one without an answer, and of each settling.
fn steps<'a>(calls: &[&'a Operation]) -> Vec<Vec<&'a Operation>> {
    let is_acquire = |call: &Operation| matches!(call.call, Call::Acquire { .. });
    let mut steps: BTreeMap<(String, bool), Vec<&Operation>> = BTreeMap::new();
    for call in calls.iter().filter(|call| is_acquire(call) || call.claim().is_some()) {
        steps.entry((String::from(call.call.request().owner), is_acquire(call))).or_default().push(call);
    }
    let mut steps: Vec<_> = steps.into_values().collect();
    for step in &mut steps {
        step.sort_by_key(|call| (call.invoked_us, call.number));
    }
    steps
}

/// The rest of the lease when these calls settled the claim, ms, if the store confirmed it.
#[expect(clippy::option_option, reason = "a claim that was confirmed has a rest, which may not be known")]
fn lease_remaining(step: &[&Operation], calls: &[&Operation]) -> Option<Option<f64>> {
    let last = step.last().filter(|last| last.claim().is_some() && matches!(last.answer, Answer::Recorded))?;
    let claim = last.claim()?;
    let acquire =
        calls.iter().find(|call| call.acquired().is_some_and(|acquired| acquired.request == claim.request))?;
    let ends_us = acquire.returned_us.map(|returned_us| returned_us + claim.request.lease_ms * 1000);
    Some(ends_us.zip(last.returned_us).map(|(ends_us, settled_us)| ms(ends_us.saturating_sub(settled_us))))
}

#[expect(clippy::cast_precision_loss, reason = "times of an invocation are small")]
fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// The number of values of a metric, and their sum.
fn distribution(metric: &Value) -> (u32, f64) {
    if let Some(value) = metric.as_f64() {
        return (1, value);
    }
    let numbers = |field: &str| metric[field].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let (values, counts): (Vec<f64>, Vec<f64>) = (numbers("Values"), numbers("Counts"));
    let sum = values.iter().zip(&counts).map(|(value, count)| value * count).sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a count")]
    (counts.iter().sum::<f64>() as u32, sum)
}
