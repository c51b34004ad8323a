//! Environments that a seed writes from their parts. Each value must be read as docs/configuration.md says, and all
//! errors must be reported together.
//!
//! - `written`: variables, and what must be read from them
//! - `logins`: how the function signs in at Redis and at PostgreSQL
//! - `s3`: payloads and results in S3

mod logins;
mod s3;
mod written;

use harness::lines;
use history::Rng;
use idempotent_sqs::config::Config;
use idempotent_sqs::idempotency::Recovery;
use idempotent_sqs::sqs::{Envelopes, FingerprintSource, KeySource};
use idempotent_sqs::webhook::{Webhook, WebhookSettings};
use idempotent_sqs_postgres::{BackfillConfig, InboxConfig, OutagePolicy};

use crate::inputs::{fingerprint_source, key_source};
use s3::write_s3;
use written::Written;

/// Number of environments of a seed.
const ENVIRONMENTS: usize = 20;

/// The longest timeout, ms, and the longest retention, s.
const MAX_MS: u64 = 900_000;
const MAX_SECONDS: u64 = 315_360_000;

/// How long SQS can keep a message, s.
const TWO_WEEKS: u64 = 1_209_600;

/// What is read from an environment.
struct Read {
    config: Config,
    webhook: WebhookSettings,
    inbox: InboxConfig,
}

/// What is wrong with how the environments of this seed are read.
pub fn read_settings(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x5e77);
    (0..ENVIRONMENTS).flat_map(|_| wrong_environment(rng)).collect()
}

fn wrong_environment(rng: &mut Rng) -> Vec<String> {
    // Most environments have no error, so that their values are compared.
    let mut written = Written::new(*rng.pick(&[0, 0, 0, 100]), rng.fork());
    let namespace = write_namespace(&mut written);
    let retention = written.number("IDEMPOTENCY_RETENTION_SECONDS", 1..=MAX_SECONDS, TWO_WEEKS, |read| {
        read.config.policy.retention.as_secs().to_string()
    });
    write_policy(&mut written);
    let concurrency =
        written.number("BATCH_CONCURRENCY", 1..=10_000, 16, |read| read.config.batch.concurrency.to_string());
    let takes_envelopes = !written.choice("IDEMPOTENCY_ENVELOPE", ["auto", "none"], |read| {
        (read.config.batch.envelopes == Envelopes::None).to_string()
    });
    let keeps_results = write_s3(&mut written, &namespace, takes_envelopes);
    write_keys(&mut written);
    write_letters(&mut written);
    write_webhook(&mut written, keeps_results);
    logins::write_redis(&mut written);
    logins::write_postgres(&mut written);
    write_inbox(&mut written, &namespace, concurrency);

    let mut environment = written.environment();
    let config = Config::read(&mut environment);
    let webhook = WebhookSettings::read(&mut environment, config.as_ref());
    let inbox = InboxConfig::read(&mut environment, config.as_ref());
    let read = environment.finish(config.zip(webhook).zip(inbox));
    let read = read.map(|((config, webhook), inbox)| Read { config, webhook, inbox });
    let mut wrong = written.wrong_values(&read);
    if let Ok(read) = read {
        wrong.extend(wrong_backfill(&mut written));
        wrong.extend(wrong_warning(read, retention));
    }
    wrong.into_iter().map(|fault| format!("{fault}: {:?}", written.variables())).collect()
}

/// The name of the logical consumer, in Redis and as the dimension of the metrics.
fn write_namespace(written: &mut Written) -> String {
    const NAMESPACE: &str = "IDEMPOTENCY_NAMESPACE";
    const COLON: &str = "a:b";
    let function = written.rng.happens(500).then_some("charge");
    if let Some(function) = function {
        written.set("AWS_LAMBDA_FUNCTION_NAME", function);
    }
    let valid = ["payments", "a b/~!", "größe", "a\u{7}b", long(1024), long(1025)];
    let mut name = written.text(NAMESPACE, &valid, &[COLON], "IDEMPOTENCY_NAMESPACE has a colon");
    if name.is_none() && written.has(NAMESPACE) {
        name = Some(COLON);
    } else if name.is_none() && function.is_none() {
        if written.is_invalid() {
            written.error("IDEMPOTENCY_NAMESPACE is missing: set it to ");
        } else {
            name = Some("payments");
            written.set(NAMESPACE, "payments");
        }
    }
    let name = name.or(function).unwrap_or_default();
    written.expect(NAMESPACE, |read| read.config.redis.namespace.clone(), name);
    write_metrics(written, name);
    name.to_owned()
}

/// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html>
fn write_metrics(written: &mut Written, consumer: &str) {
    const METRICS: &str = "METRICS_NAMESPACE";
    let valid = ["payments", "a.b-c_d/e#f:g 9", "AWS", long(255)];
    let invalid = ["AWS/Lambda", ":a", "ä", "a*b", "a\tb", long(256)];
    let metrics = written.text(METRICS, &valid, &invalid, "METRICS_NAMESPACE is invalid");
    let is_accepted = consumer.len() <= 1024 && consumer.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if written.has(METRICS) && !is_accepted {
        written.error("IDEMPOTENCY_NAMESPACE is invalid as a dimension of metrics");
    }
    let expected = metrics.map(|metrics| (metrics.to_owned(), consumer.to_owned()));
    let read = |read: &Read| {
        format!(
            "{:?}",
            read.config.metrics.as_ref().map(|metrics| (metrics.namespace.clone(), metrics.consumer.clone()))
        )
    };
    written.expect(METRICS, read, format!("{expected:?}"));
}

fn write_policy(written: &mut Written) {
    written.number("IDEMPOTENCY_MAX_ATTEMPTS", 1..=255, 200, |read| read.config.policy.max_attempts.to_string());
    let grace_ms = written
        .number("LEASE_GRACE_MS", 0..=MAX_MS, 1000, |read| read.config.policy.lease_grace.as_millis().to_string());
    let longest_ms = grace_ms + MAX_MS;
    written.expect("the longest lease", |read| read.config.policy.longest_lease.as_millis().to_string(), longest_ms);
    let parks = |read: &Read| (read.config.policy.recovery == Recovery::Park).to_string();
    written.choice("IDEMPOTENCY_RECOVERY", ["rerun", "park"], parks);
    written.choice("VISIBILITY_BACKOFF", ["true", "false"], |read| (!read.config.visibility_backoff).to_string());
}

/// The settings of keys and of what is compared.
fn write_keys(written: &mut Written) {
    const KEY: &str = "IDEMPOTENCY_KEY";
    const FINGERPRINT: &str = "IDEMPOTENCY_FINGERPRINT";
    let mut keys = vec![KeySource::Attribute("Idempotency-Key".to_owned()), KeySource::MessageId];
    if written.rng.happens(500) {
        let (mut texts, found): (Vec<_>, Vec<_>) =
            (0..written.rng.draw(1..4)).map(|_| source_of(written, true, key_source)).unzip();
        keys = found.into_iter().flatten().collect();
        if written.is_invalid() {
            texts.insert(0, source_of(written, false, key_source).0);
            written.error("IDEMPOTENCY_KEY: ");
        }
        written.set(KEY, &texts.join(","));
        if keys.iter().rev().skip(1).any(|key| *key == KeySource::MessageId) {
            written.error("IDEMPOTENCY_KEY has sources after messageId");
        }
    }
    written.expect(KEY, |read| format!("{:?}", read.config.batch.keys), format!("{keys:?}"));
    let mut fingerprint = FingerprintSource::Body;
    if written.rng.happens(500) {
        let is_valid = !written.is_invalid();
        let (text, found) = source_of(written, is_valid, fingerprint_source);
        written.set(FINGERPRINT, &text);
        match found {
            Some(source) => fingerprint = source,
            None => written.error("IDEMPOTENCY_FINGERPRINT: "),
        }
    }
    written.expect(FINGERPRINT, |read| format!("{:?}", read.config.batch.fingerprint), format!("{fingerprint:?}"));
}

/// A source that is written, and what it is, if it is valid. A setting without a text would not be set.
fn source_of<T>(
    written: &mut Written,
    is_valid: bool,
    source: fn(&mut Rng) -> (String, Option<T>),
) -> (String, Option<T>) {
    loop {
        let (text, source) = source(&mut written.rng);
        if source.is_some() == is_valid && !text.trim().is_empty() {
            return (text, source);
        }
    }
}

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-queue-message-identifiers.html>
fn write_letters(written: &mut Written) {
    const QUEUE: &str = "DEAD_LETTER_QUEUE_URL";
    const ACCOUNT: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/";
    let valid = [
        "https://sqs.eu-central-1.amazonaws.com/123456789012/Dead-letters_9",
        "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/letters.fifo",
        "http://localhost:4566/000000000000/a",
    ];
    let invalid = [
        "letters",
        ACCOUNT,
        "https://sqs.eu-central-1.amazonaws.com/12345678901/letters",
        "https://sqs.eu-central-1.amazonaws.com/12345678901a/letters",
        "https://sqs.eu-central-1.amazonaws.com/123456789012/a b",
        "https://sqs.eu-central-1.amazonaws.com/123456789012/.fifo",
        "https://sqs.eu-central-1.amazonaws.com/123456789012/a.fif",
        "https:///123456789012/letters",
        "ftp://localhost/123456789012/letters",
    ];
    let mut url = written.text(QUEUE, &valid, &invalid, "DEAD_LETTER_QUEUE_URL is invalid").map(str::to_owned);
    if url.is_some() && written.rng.happens(200) {
        let length = if written.is_invalid() { 81 } else { 80 };
        let longest = format!("{ACCOUNT}{}", long(length));
        written.set(QUEUE, &longest);
        url = Some(longest);
        if length > 80 {
            written.error("DEAD_LETTER_QUEUE_URL is invalid");
        }
    }
    let read = |read: &Read| {
        let queue = read.config.batch.dead_letter_queue.as_ref();
        format!("{:?}", queue.map(|queue| format!("{queue:?}")))
    };
    let expected = url.map(|url| format!("DeadLetterQueue {{ url: {url:?}, .. }}"));
    written.expect(QUEUE, read, format!("{expected:?}"));
}

/// A larger response than the largest result is not kept, so one more byte is read.
fn write_webhook(written: &mut Written, keeps_results: bool) {
    const INLINE: &str = "IDEMPOTENCY_RESULT_MAX_BYTES";
    let kept = written.number(INLINE, 0..=1_048_576, 4096, |read| read.config.policy.result_max_bytes.to_string());
    let most = if keeps_results { 6 << 20 } else { kept } + 1;
    written.expect("the longest response", |read| read.webhook.response_max_bytes.to_string(), most);
    let valid = ["https://localhost/charge", "http://localhost:8080/?a=b"];
    if let Some(url) = written.required("TARGET_URL", &valid, &["localhost", "ftp://localhost/", "https://"]) {
        written.expect("TARGET_URL", |read| read.webhook.url.to_string(), url);
    }
    let timeout_ms =
        written.number("TARGET_TIMEOUT_MS", 1..=MAX_MS, 10_000, |read| read.webhook.timeout.as_millis().to_string());
    let connect_ms = written.unread_number("TARGET_CONNECT_TIMEOUT_MS", 1..=MAX_MS, 2000);
    let connect_ms = connect_ms.min(timeout_ms);
    written.expect(
        "the timeout of connections",
        |read| read.webhook.connect_timeout.as_millis().to_string(),
        connect_ms,
    );
}

fn write_inbox(written: &mut Written, namespace: &str, concurrency: u64) {
    const SHARED: &str = "AWS_LAMBDA_MAX_CONCURRENCY";
    written.number("INBOX_RETENTION_SECONDS", 1..=MAX_SECONDS, 2 * TWO_WEEKS, |read| {
        read.inbox.inbox.retention.as_secs().to_string()
    });
    let proceeds = |read: &Read| (read.inbox.without_redis == OutagePolicy::Proceed).to_string();
    written.choice("INBOX_WITHOUT_REDIS", ["refuse", "proceed"], proceeds);
    // Lambda sets it.
    let (shared, invocations) = *written.rng.pick(&[("", 1), ("1", 1), ("10", 10), ("0", 1), ("ten", 1)]);
    written.set(SHARED, shared);
    let connections = concurrency * invocations;
    written.expect("the connections", |read| read.inbox.database.connections.to_string(), connections);
    written.expect("the rows", |read| read.inbox.inbox.namespace.clone(), namespace);
}

/// What is wrong with the settings of the backfill, whose function has a name of its own, with an environment without
/// errors.
fn wrong_backfill(written: &mut Written) -> Option<String> {
    const NAMESPACE: &str = "IDEMPOTENCY_NAMESPACE";
    let rows = written.unread_number("BACKFILL_ROWS_PER_SECOND", 1..=1_000_000, 10_000);
    if !written.has(NAMESPACE) {
        written.error(format!("{NAMESPACE} is missing: set it to "));
    }
    let mut environment = written.environment();
    let read = BackfillConfig::read(&mut environment);
    match environment.finish(read) {
        Ok(read) => {
            let (policy, backfill) = (&read.config.policy, &read.backfill);
            let is_right = u64::from(backfill.rows_per_second.get()) == rows
                && backfill.namespace == read.config.redis.namespace
                && (backfill.retention, backfill.result_max_bytes) == (policy.retention, policy.result_max_bytes);
            (!is_right || !written.has(NAMESPACE)).then(|| format!("the backfill has {backfill:?}"))
        }
        Err(error) => written.wrong_errors(&error).map(|fault| format!("the backfill: {fault}")),
    }
}

/// What is wrong with the warning that records expire before their messages.
fn wrong_warning(read: Read, retention: u64) -> Option<String> {
    lines::take();
    let handler = read.config.handler(Webhook::new(read.webhook));
    let lines = lines::take();
    let warnings = lines.iter().filter(|line| line.get("retention_s") == Some(&*retention.to_string())).count();
    let is_right = handler.is_ok() && lines.len() == warnings && (warnings == 1) == (retention < TWO_WEEKS);
    (!is_right).then(|| format!("records expire after {retention} s: {handler:?}, {lines:?}"))
}

/// A text of this length, up to 1,100 bytes.
fn long(length: usize) -> &'static str {
    const LONG: &[u8; 1100] = &[b'n'; 1100];
    str::from_utf8(&LONG[..length]).expect("it is ASCII")
}
