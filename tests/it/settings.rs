//! Settings from the environment (`config`): required and optional settings and their defaults.

mod errors;
mod keys;
mod redis;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

use idempotent_sqs::config::{Config, ConfigError, Environment};
use idempotent_sqs::idempotency::{MAX_RESULT_BYTES, Recovery};
use idempotent_sqs::metrics::MetricsSettings;
use idempotent_sqs::sqs::{Envelopes, FingerprintSource, KeySource};
use idempotent_sqs::webhook::WebhookSettings;

type Settings<'a> = &'a [(&'a str, &'a str)];

/// The required settings of the function.
const REQUIRED: Settings = &[
    ("REDIS_URL", "redis://cache.internal:6379"),
    ("TARGET_URL", "https://payments.internal/hook"),
    ("AWS_LAMBDA_FUNCTION_NAME", "payments-function"),
];

fn environment(settings: &[Settings]) -> Environment {
    let settings = settings.iter().flat_map(|settings| settings.iter());
    let settings: HashMap<_, _> = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Environment::new(move |name| settings.get(name).cloned())
}

fn read(settings: &[Settings]) -> Result<(Config, WebhookSettings), ConfigError> {
    let mut environment = environment(settings);
    let config = Config::read(&mut environment);
    let webhook = WebhookSettings::read(&mut environment, config.as_ref());
    environment.finish(config.zip(webhook))
}

/// The errors of these settings.
fn errors(settings: &[Settings]) -> Vec<String> {
    let error = read(settings).expect_err("the settings are invalid").to_string();
    let (count, errors) = error.split_once(":\n  - ").expect("errors are a list");
    let errors: Vec<_> = errors.split("\n  - ").map(str::to_owned).collect();
    assert_eq!(count, format!("the settings have {} error(s)", errors.len()));
    errors
}

/// The only error of the required settings and this one.
fn error_of(name: &str, value: &str) -> String {
    let errors = errors(&[REQUIRED, &[(name, value)]]);
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.into_iter().next().unwrap()
}

#[test]
fn the_longest_lease_is_that_of_the_longest_invocation_and_the_grace() {
    for (grace_ms, longest_ms) in [("0", 900_000), ("2500", 902_500)] {
        let (config, _webhook) = read(&[REQUIRED, &[("LEASE_GRACE_MS", grace_ms)]]).unwrap();
        assert_eq!(config.policy.longest_lease, Duration::from_millis(longest_ms));
    }
}

#[test]
fn defaults_match_the_table_of_settings() {
    let (config, webhook) = read(&[REQUIRED]).unwrap();
    assert!(!config.redis.cluster);
    assert_eq!(config.redis.timeout, Duration::from_millis(500));
    assert_eq!(config.redis.namespace, "payments-function");
    assert_eq!(config.batch.keys, [KeySource::Attribute("Idempotency-Key".into()), KeySource::MessageId]);
    assert_eq!(config.batch.fingerprint, FingerprintSource::Body);
    assert_eq!(config.batch.envelopes, Envelopes::Auto);
    assert_eq!(config.batch.concurrency.get(), 16);
    assert!(config.batch.extended_client.objects.is_none() && config.batch.extended_client.buckets.is_empty());
    assert_eq!(config.batch.extended_client.max_bytes, 4 << 20);
    assert_eq!(config.policy.retention, Duration::from_secs(1_209_600));
    assert_eq!(config.policy.max_attempts, 200);
    assert_eq!(config.policy.recovery, Recovery::Rerun);
    assert_eq!(config.policy.result_max_bytes, 4096);
    assert!(config.policy.results.is_none());
    assert_eq!(config.policy.lease_grace, Duration::from_secs(1));
    assert!(config.visibility_backoff);
    assert_eq!(config.metrics, None);
    assert_eq!(webhook.url.as_str(), "https://payments.internal/hook");
    assert_eq!(webhook.timeout, Duration::from_secs(10));
    assert_eq!(webhook.connect_timeout, Duration::from_secs(2));
    assert_eq!(webhook.response_max_bytes, 4097);
}

/// Every setting, with a value other than its default, but for `IDEMPOTENCY_ENVELOPE`: its other value excludes
/// `PAYLOAD_BUCKETS`.
const EVERY: Settings = &[
    ("REDIS_URL", "rediss://user:pw@cache.internal:6380/2"),
    ("REDIS_CLUSTER", "true"),
    ("REDIS_TIMEOUT_MS", "250"),
    ("IDEMPOTENCY_NAMESPACE", "payments"),
    ("IDEMPOTENCY_KEY", "body:/payment/id, attribute:Key,deduplicationId,messageId"),
    ("IDEMPOTENCY_FINGERPRINT", "body:/amount,/currency"),
    ("IDEMPOTENCY_RETENTION_SECONDS", "86400"),
    ("IDEMPOTENCY_MAX_ATTEMPTS", "3"),
    ("IDEMPOTENCY_RECOVERY", "park"),
    ("IDEMPOTENCY_RESULT_MAX_BYTES", "0"),
    ("LEASE_GRACE_MS", "0"),
    ("BATCH_CONCURRENCY", "1"),
    ("PAYLOAD_BUCKETS", "payloads, more.payloads"),
    ("PAYLOAD_MAX_BYTES", "1000000"),
    ("RESULT_BUCKET", "results"),
    ("RESULT_PREFIX", "kept/"),
    ("AWS_REGION", "eu-central-1"),
    ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000"),
    ("TARGET_URL", "http://127.0.0.1:8080/hook?a=b"),
    ("TARGET_TIMEOUT_MS", "3000"),
    ("TARGET_CONNECT_TIMEOUT_MS", "500"),
    ("VISIBILITY_BACKOFF", "false"),
    ("METRICS_NAMESPACE", "idempotent-sqs"),
];

#[test]
fn every_setting_is_read() {
    let (config, webhook) = read(&[EVERY]).unwrap();
    assert!(config.redis.cluster);
    assert_eq!(config.redis.timeout, Duration::from_millis(250));
    assert_eq!(config.redis.namespace, "payments");
    assert_eq!(
        config.batch.keys,
        [
            KeySource::Body("/payment/id".into()),
            KeySource::Attribute("Key".into()),
            KeySource::DeduplicationId,
            KeySource::MessageId
        ]
    );
    assert_eq!(config.batch.fingerprint, FingerprintSource::Pointers(vec!["/amount".into(), "/currency".into()]));
    assert_eq!(config.batch.envelopes, Envelopes::Auto);
    assert_eq!(config.batch.concurrency.get(), 1);
    assert!(config.batch.extended_client.objects.is_some());
    assert_eq!(config.batch.extended_client.buckets, ["payloads", "more.payloads"]);
    assert_eq!(config.batch.extended_client.max_bytes, 1_000_000);
    assert_eq!(config.policy.retention, Duration::from_secs(86_400));
    assert_eq!(config.policy.max_attempts, 3);
    assert_eq!(config.policy.recovery, Recovery::Park);
    assert_eq!(config.policy.result_max_bytes, 0);
    let results = config.policy.results.unwrap();
    assert_eq!((results.bucket.as_str(), results.prefix.as_str()), ("results", "kept/payments/"));
    assert_eq!(config.policy.lease_grace, Duration::ZERO);
    assert!(!config.visibility_backoff);
    let metrics = MetricsSettings::new("idempotent-sqs", "payments");
    assert_eq!(config.metrics, Some(metrics));
    assert_eq!(webhook.url.as_str(), "http://127.0.0.1:8080/hook?a=b");
    assert_eq!(webhook.timeout, Duration::from_secs(3));
    assert_eq!(webhook.connect_timeout, Duration::from_millis(500));
    assert_eq!(webhook.response_max_bytes, MAX_RESULT_BYTES + 1, "larger results are stored in S3");
}

#[test]
fn the_default_connect_timeout_is_at_most_the_webhook_timeout() {
    let (_, webhook) = read(&[REQUIRED, &[("TARGET_TIMEOUT_MS", "1500")]]).unwrap();
    assert_eq!(webhook.connect_timeout, Duration::from_millis(1500));
}

#[test]
fn the_fingerprint_can_be_disabled() {
    let (config, _) = read(&[REQUIRED, &[("IDEMPOTENCY_FINGERPRINT", "none")]]).unwrap();
    assert_eq!(config.batch.fingerprint, FingerprintSource::None);
}

#[test]
fn envelopes_can_be_left_closed() {
    let (config, _) = read(&[REQUIRED, &[("IDEMPOTENCY_ENVELOPE", "none")]]).unwrap();
    assert_eq!(config.batch.envelopes, Envelopes::None);
}

#[test]
fn an_explicit_namespace_overrides_the_function_name() {
    let (config, _) = read(&[REQUIRED, &[("IDEMPOTENCY_NAMESPACE", "payments")]]).unwrap();
    assert_eq!(config.redis.namespace, "payments");
}

#[test]
fn an_empty_setting_counts_as_not_set() {
    for empty_value in ["", " ", "\n"] {
        let empty: Vec<_> =
            EVERY.iter().map(|(name, _)| (*name, empty_value)).filter(|(name, _)| !name.ends_with("_URL")).collect();
        let (config, webhook) = read(&[REQUIRED, &empty]).unwrap();
        assert_eq!(config.redis.namespace, "payments-function");
        assert_eq!(config.policy.max_attempts, 200);
        assert_eq!(config.batch.keys.len(), 2);
        assert!(config.visibility_backoff);
        assert_eq!(webhook.timeout, Duration::from_secs(10));
        assert_eq!(webhook.connect_timeout, Duration::from_secs(2));
    }
    assert_eq!(errors(&[&[("REDIS_URL", ""), ("TARGET_URL", " "), ("AWS_LAMBDA_FUNCTION_NAME", "")]]), errors(&[]));
}

#[test]
fn a_default_need_not_be_of_whole_units() {
    let mut environment = environment(&[]);
    for default in [Duration::from_millis(500), Duration::from_millis(1500), Duration::from_micros(1), Duration::MAX] {
        assert_eq!(environment.seconds("PAUSE_SECONDS", default), default);
        assert_eq!(environment.milliseconds("PAUSE_MS", 0, default), default);
    }
}

#[test]
fn white_space_around_a_value_is_ignored() {
    let spaced: Vec<_> = EVERY.iter().map(|(name, value)| (*name, format!(" {value}\n"))).collect();
    let spaced: Vec<_> = spaced.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(format!("{:?}", read(&[&spaced])), format!("{:?}", read(&[EVERY])));
}

#[test]
fn a_function_with_its_own_work_needs_no_webhook_settings() {
    let without_target: Vec<_> = REQUIRED.iter().copied().filter(|(name, _)| *name != "TARGET_URL").collect();
    let mut environment = environment(&[&without_target]);
    let config = Config::read(&mut environment);
    assert_eq!(environment.finish(config).unwrap().redis.namespace, "payments-function");
}

#[test]
fn a_setting_that_is_not_unicode_is_an_error_and_does_not_count_as_not_set() {
    let not_unicode = OsStr::from_bytes(b"10\xff");
    let output = Command::new(env!("CARGO_BIN_EXE_idempotent-sqs"))
        .env_clear()
        .envs([("REDIS_URL", "redis://cache"), ("AWS_LAMBDA_FUNCTION_NAME", "payments")])
        .envs([("TARGET_URL", not_unicode), ("BATCH_CONCURRENCY", not_unicode)])
        .output()
        .unwrap();
    let log = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && log.contains("the settings have 2 error(s)"), "{log}");
    for name in ["TARGET_URL", "BATCH_CONCURRENCY"] {
        assert!(log.contains(&format!("{name} is not Unicode: set it to text in UTF-8")), "{log}");
    }
}
