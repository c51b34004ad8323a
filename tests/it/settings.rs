//! What the environment may say, and what is said of its faults.

use std::collections::HashMap;
use std::time::Duration;

use idempotent_sqs::config::{Config, ConfigError, Environment};
use idempotent_sqs::idempotency::{MAX_RESULT_BYTES, Recovery};
use idempotent_sqs::metrics::MetricsSettings;
use idempotent_sqs::sqs::{Envelopes, FingerprintSource, KeySource};
use idempotent_sqs::webhook::WebhookSettings;

use harness::http::TOKEN;
use harness::lambda::PASSWORD;
use harness::soon;

type Settings<'a> = &'a [(&'a str, &'a str)];

/// All that the function cannot do without.
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

fn faults(settings: &[Settings]) -> Vec<String> {
    let error = read(settings).expect_err("the settings have faults").to_string();
    let (count, faults) = error.split_once(":\n  - ").expect("faults are a list");
    let faults: Vec<_> = faults.split("\n  - ").map(str::to_owned).collect();
    assert_eq!(count, format!("the settings have {} error(s)", faults.len()));
    faults
}

fn the_fault(name: &str, value: &str) -> String {
    let faults = faults(&[REQUIRED, &[(name, value)]]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults.into_iter().next().unwrap()
}

#[test]
fn what_is_not_set_is_what_the_table_of_settings_says() {
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
    assert_eq!(config.policy.max_attempts, 10);
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

const EVERY: Settings = &[
    ("REDIS_URL", "rediss://user:pw@cache.internal:6380/2"),
    ("REDIS_CLUSTER", "true"),
    ("REDIS_TIMEOUT_MS", "250"),
    ("IDEMPOTENCY_NAMESPACE", "payments"),
    ("IDEMPOTENCY_KEY", "body:/payment/id, attribute:Key,messageId,deduplicationId"),
    ("IDEMPOTENCY_FINGERPRINT", "body:/amount,/currency"),
    ("IDEMPOTENCY_ENVELOPE", "none"),
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
            KeySource::MessageId,
            KeySource::DeduplicationId
        ]
    );
    assert_eq!(config.batch.fingerprint, FingerprintSource::Pointers(vec!["/amount".into(), "/currency".into()]));
    assert_eq!(config.batch.envelopes, Envelopes::None);
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
    let metrics = MetricsSettings { namespace: "idempotent-sqs".into(), consumer: "payments".into() };
    assert_eq!(config.metrics, Some(metrics));
    assert_eq!(webhook.url.as_str(), "http://127.0.0.1:8080/hook?a=b");
    assert_eq!(webhook.timeout, Duration::from_secs(3));
    assert_eq!(webhook.connect_timeout, Duration::from_millis(500));
    assert_eq!(webhook.response_max_bytes, MAX_RESULT_BYTES + 1, "what is too large for a record goes to S3");
}

#[test]
fn the_webhook_has_no_longer_to_accept_a_connection_than_to_answer() {
    let (_, webhook) = read(&[REQUIRED, &[("TARGET_TIMEOUT_MS", "1500")]]).unwrap();
    assert_eq!(webhook.connect_timeout, Duration::from_millis(1500));
}

#[test]
fn a_fingerprint_can_be_left_out() {
    let (config, _) = read(&[REQUIRED, &[("IDEMPOTENCY_FINGERPRINT", "none")]]).unwrap();
    assert_eq!(config.batch.fingerprint, FingerprintSource::None);
}

#[test]
fn a_namespace_of_its_own_goes_before_the_functions_name() {
    let (config, _) = read(&[REQUIRED, &[("IDEMPOTENCY_NAMESPACE", "payments")]]).unwrap();
    assert_eq!(config.redis.namespace, "payments");
}

#[test]
fn what_is_set_to_nothing_is_not_set() {
    for nothing in ["", " ", "\n"] {
        let empty: Vec<_> =
            EVERY.iter().map(|(name, _)| (*name, nothing)).filter(|(name, _)| !name.ends_with("_URL")).collect();
        let (config, webhook) = read(&[REQUIRED, &empty]).unwrap();
        assert_eq!(config.redis.namespace, "payments-function");
        assert_eq!(config.policy.max_attempts, 10);
        assert_eq!(config.batch.keys.len(), 2);
        assert!(config.visibility_backoff);
        assert_eq!(webhook.timeout, Duration::from_secs(10));
        assert_eq!(webhook.connect_timeout, Duration::from_secs(2));
    }
    assert_eq!(faults(&[&[("REDIS_URL", ""), ("TARGET_URL", " "), ("AWS_LAMBDA_FUNCTION_NAME", "")]]), faults(&[]),);
}

#[test]
fn what_is_missing_is_named_with_what_it_should_be() {
    assert_eq!(
        faults(&[]),
        [
            "REDIS_URL is missing: set it to redis://HOST:6379, or rediss://HOST:6379 for TLS",
            "IDEMPOTENCY_NAMESPACE is missing: set it to the name of the logical consumer, such as payments",
            "TARGET_URL is missing: set it to the https:// address of the webhook",
        ]
    );
}

#[test]
fn a_namespace_ends_at_the_first_colon_of_a_redis_key_and_so_has_none() {
    let fault = the_fault("IDEMPOTENCY_NAMESPACE", "payments:eu");
    assert!(fault.contains("set it to a name without one"), "{fault}");
}

#[test]
fn metrics_have_names_that_cloudwatch_takes() {
    for namespace in ["AWS/SQS", ":payments", "payments\"", "z\u{fc}rich", &"n".repeat(256)] {
        let fault = the_fault("METRICS_NAMESPACE", namespace);
        assert!(fault.starts_with("METRICS_NAMESPACE is invalid: set it to a name"), "{fault}");
    }
    for consumer in ["z\u{fc}rich", &"n".repeat(1025)] {
        assert!(read(&[REQUIRED, &[("IDEMPOTENCY_NAMESPACE", consumer)]]).is_ok(), "without metrics it may be");
        let settings: Settings = &[("METRICS_NAMESPACE", "idempotent-sqs"), ("IDEMPOTENCY_NAMESPACE", consumer)];
        let faults = faults(&[REQUIRED, settings]);
        assert!(faults[0].starts_with("IDEMPOTENCY_NAMESPACE is invalid as a dimension"), "{faults:?}");
    }
}

#[test]
fn a_function_with_a_work_of_its_own_needs_no_webhook() {
    let without_target: Vec<_> = REQUIRED.iter().copied().filter(|(name, _)| *name != "TARGET_URL").collect();
    let mut environment = environment(&[&without_target]);
    let config = Config::read(&mut environment);
    assert_eq!(environment.finish(config).unwrap().redis.namespace, "payments-function");
}

#[test]
fn each_fault_says_what_would_be_right() {
    for (name, wrong, right) in [
        ("REDIS_CLUSTER", "yes", "true or false"),
        ("REDIS_TIMEOUT_MS", "0", "a whole number from 1 to 900000"),
        ("REDIS_TIMEOUT_MS", "half a second", "a whole number from 1 to 900000"),
        (
            "IDEMPOTENCY_KEY",
            "header:Idempotency-Key",
            "attribute:NAME, body:/json/pointer, deduplicationId or messageId",
        ),
        ("IDEMPOTENCY_KEY", "messageId,body:id", "attribute:NAME, body:/json/pointer, deduplicationId or messageId"),
        ("IDEMPOTENCY_KEY", "messageId,", "attribute:NAME, body:/json/pointer, deduplicationId or messageId"),
        ("IDEMPOTENCY_FINGERPRINT", "body:amount", "body, body:/json/pointer,/another or none"),
        ("IDEMPOTENCY_ENVELOPE", "sns", "auto or none"),
        ("IDEMPOTENCY_RETENTION_SECONDS", "0", "a whole number from 1 to 315360000"),
        ("IDEMPOTENCY_RETENTION_SECONDS", "18446744073709551616", "a whole number from 1 to 315360000"),
        ("IDEMPOTENCY_MAX_ATTEMPTS", "0", "a whole number from 1 to 255"),
        ("IDEMPOTENCY_MAX_ATTEMPTS", "256", "a whole number from 1 to 255"),
        ("IDEMPOTENCY_RECOVERY", "skip", "rerun or park"),
        ("IDEMPOTENCY_RESULT_MAX_BYTES", "-1", "a whole number from 0 to 1048576"),
        ("LEASE_GRACE_MS", "1.5", "a whole number from 0 to 900000"),
        ("LEASE_GRACE_MS", "900001", "a whole number from 0 to 900000"),
        ("BATCH_CONCURRENCY", "0", "a whole number from 1"),
        ("PAYLOAD_MAX_BYTES", "0", "a whole number from 1 to 1073741824"),
        ("TARGET_URL", "payments.internal/hook", "the http:// or https:// address of the webhook"),
        ("TARGET_URL", "ftp://payments.internal", "the http:// or https:// address of the webhook"),
        ("TARGET_TIMEOUT_MS", "0", "a whole number from 1 to 900000"),
        ("TARGET_CONNECT_TIMEOUT_MS", "0", "a whole number from 1 to 900000"),
        ("VISIBILITY_BACKOFF", "FALSE", "true or false"),
        ("REDIS_URL", "cache.internal:6379", "redis://HOST:6379, or rediss://HOST:6379 for TLS"),
        ("REDIS_URL", "unix:///run/redis.sock", "redis://HOST:6379, or rediss://HOST:6379 for TLS"),
        ("REDIS_URL", "rediss://cache.internal/#insecure", "certificates are always verified"),
        ("REDIS_IAM_SERVERLESS", "yes", "true or false"),
        ("REDIS_IAM_SESSION_SECONDS", "0", "a whole number from 1 to 43200"),
        ("REDIS_IAM_SESSION_SECONDS", "43201", "a whole number from 1 to 43200"),
        ("REDIS_SECRET_ARN", "redis-password", "arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME"),
    ] {
        let fault = the_fault(name, wrong);
        assert!(fault.starts_with(name) && fault.contains(right), "{name}={wrong}: {fault}");
        assert_eq!(fault.matches(&format!("{wrong:?}")).count().max(1), 1, "it is said once: {fault}");
    }
}

#[test]
fn each_fault_of_what_is_in_s3_says_what_would_be_right() {
    for (wrong, right) in [
        (
            [("PAYLOAD_BUCKETS", "payloads,"), ("AWS_REGION", "eu-central-1")],
            "PAYLOAD_BUCKETS: \"\" is not the name of an S3",
        ),
        (
            [("PAYLOAD_BUCKETS", "../a"), ("AWS_REGION", "eu-central-1")],
            "PAYLOAD_BUCKETS: \"../a\" is not the name of an S3",
        ),
        (
            [("RESULT_BUCKET", "a-b,c-d"), ("AWS_REGION", "eu-central-1")],
            "RESULT_BUCKET: \"a-b,c-d\" is not the name of an S3",
        ),
        ([("RESULT_BUCKET", "results"), ("AWS_REGION", "")], "AWS_REGION is missing: set it to the region of the S3"),
        ([("PAYLOAD_BUCKETS", "payloads"), ("RESULT_BUCKET", "results")], "AWS_REGION is missing"),
    ] {
        let faults = faults(&[REQUIRED, &wrong]);
        assert!(faults.len() == 1 && faults[0].starts_with(right), "{wrong:?}: {faults:?}");
    }
    for address in ["s3.internal", "s3://results", "ftp://s3.internal"] {
        let wrong = [("RESULT_BUCKET", "results"), ("AWS_REGION", "eu-central-1"), ("AWS_ENDPOINT_URL_S3", address)];
        let faults = faults(&[REQUIRED, &wrong]);
        assert!(faults.len() == 1 && faults[0].contains("an http:// or https:// address"), "{faults:?}");
    }
}

const ALL_WRONG: Settings = &[
    ("REDIS_CLUSTER", "yes"),
    ("REDIS_TIMEOUT_MS", "soon"),
    ("REDIS_IAM_USER", "role/payments"),
    ("REDIS_IAM_CACHE", "cache.amazonaws.com"),
    ("REDIS_IAM_SERVERLESS", "perhaps"),
    ("REDIS_IAM_SESSION_SECONDS", "long"),
    ("REDIS_SECRET_ARN", "password"),
    ("IDEMPOTENCY_KEY", "nowhere"),
    ("IDEMPOTENCY_FINGERPRINT", "thumb"),
    ("IDEMPOTENCY_ENVELOPE", "paper"),
    ("IDEMPOTENCY_RETENTION_SECONDS", "for ever"),
    ("IDEMPOTENCY_MAX_ATTEMPTS", "many"),
    ("IDEMPOTENCY_RECOVERY", "perhaps"),
    ("IDEMPOTENCY_RESULT_MAX_BYTES", "all"),
    ("LEASE_GRACE_MS", "some"),
    ("BATCH_CONCURRENCY", "none"),
    ("PAYLOAD_BUCKETS", "Files"),
    ("PAYLOAD_MAX_BYTES", "few"),
    ("RESULT_BUCKET", "s3://results"),
    ("AWS_ENDPOINT_URL_S3", "here"),
    ("TARGET_TIMEOUT_MS", "long"),
    ("TARGET_CONNECT_TIMEOUT_MS", "short"),
    ("VISIBILITY_BACKOFF", "maybe"),
];

const TLS: (&str, &str) = ("REDIS_URL", "rediss://cache.internal");
const USER: (&str, &str) = ("REDIS_IAM_USER", "payments");
const CACHE: (&str, &str) = ("REDIS_IAM_CACHE", "idempotency");
const SECRET: (&str, &str) = ("REDIS_SECRET_ARN", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis");

#[test]
fn who_the_function_is_to_redis_is_the_urls_user_an_iam_user_or_a_secret() {
    let credentials = |settings: Settings| {
        let source = read(&[REQUIRED, &[TLS], settings]).unwrap().0.redis.credentials;
        source.map(|source| (format!("{source:?}"), source.max_session().map(|session| session.as_secs())))
    };
    assert_eq!(credentials(&[]), None);
    let (iam, session) = credentials(&[USER, CACHE]).expect("a user and a cache are enough for IAM");
    assert!(iam.contains(r#"user: ElastiCacheName("payments"), cache: ElastiCacheName("idempotency")"#), "{iam}");
    assert!(iam.contains("serverless: false"), "{iam}");
    assert_eq!(session, Some(39_600));

    let all = [USER, CACHE, ("REDIS_IAM_SERVERLESS", "true"), ("REDIS_IAM_SESSION_SECONDS", "900")];
    let (iam, session) = credentials(&all).unwrap();
    assert!(iam.contains("serverless: true"), "{iam}");
    assert_eq!(session, Some(900));
    for url in [TLS, ("REDIS_URL", "redis://payments@cache")] {
        let (secret, session) = credentials(&[SECRET, url]).unwrap();
        assert!(secret.starts_with("SecretCredentials") && secret.contains(SECRET.1), "{secret}");
        assert_eq!(session, None);
    }
}

#[test]
fn two_ways_to_sign_in_half_a_way_and_a_token_without_tls_are_faults() {
    let signed_in = ("REDIS_URL", "rediss://:secret@cache");
    let cases: [(Settings, &str); 7] = [
        (&[TLS, USER, CACHE, SECRET], "REDIS_SECRET_ARN and REDIS_IAM_USER are both set"),
        (&[signed_in, USER, CACHE], "REDIS_URL has a user or a password, and REDIS_IAM_USER replaces them"),
        (&[("REDIS_URL", "rediss://payments@cache"), USER, CACHE], "REDIS_URL has a user or a password"),
        (&[signed_in, SECRET], "REDIS_URL has a password, and the secret of REDIS_SECRET_ARN replaces it"),
        (&[USER, CACHE], "REDIS_URL is without TLS"),
        (&[TLS, USER], "REDIS_IAM_CACHE is missing"),
        (&[TLS, CACHE], "REDIS_IAM_USER is missing"),
    ];
    for (settings, said) in cases {
        let faults = faults(&[REQUIRED, settings]);
        assert!(faults.len() == 1 && faults[0].starts_with(said), "{faults:?}");
    }
}

#[test]
fn all_faults_are_named_at_once_and_each_once() {
    for required in [&[][..], &[("REDIS_URL", "http://cache"), ("TARGET_URL", "somewhere")]] {
        let faults = faults(&[ALL_WRONG, required]);
        for (name, _) in ALL_WRONG.iter().chain(REQUIRED) {
            let name = name.replace("AWS_LAMBDA_FUNCTION_NAME", "IDEMPOTENCY_NAMESPACE");
            assert_eq!(faults.iter().filter(|fault| fault.starts_with(&name)).count(), 1, "{name} in {faults:#?}");
        }
        let region = usize::from(faults.iter().any(|fault| fault.starts_with("AWS_REGION is missing")));
        assert_eq!((faults.len(), region), (ALL_WRONG.len() + REQUIRED.len() + 1, 1), "{faults:#?}");
    }
}

#[test]
fn no_fault_shows_a_password_or_a_token() {
    for url in [
        format!("redis://user:{PASSWORD}@cache:port"),
        format!("redis://user:{PASSWORD}@cache:6379/first"),
        format!("redis://user:{PASSWORD}@"),
        format!("redis://:{PASSWORD}%ff@cache"),
        format!("redis://user:{PASSWORD}/x@cache:6379"),
        format!("redis://user:{PASSWORD} x@cache:6379:7"),
        format!("rediss://user:{PASSWORD}@cache/#insecure"),
        format!("rediss://user:{PASSWORD}@cache/#{PASSWORD}"),
        format!("redis://cache/?protocol={PASSWORD}"),
        format!("unix:///run/redis.sock?pass={PASSWORD}"),
        format!("http://user:{PASSWORD}@cache"),
        format!("user:{PASSWORD}@cache"),
        PASSWORD.to_owned(),
    ] {
        let fault = the_fault("REDIS_URL", &url);
        assert!(!fault.contains(PASSWORD), "{fault}");
    }
    for url in [format!("hooks.internal/{TOKEN}"), format!("https://{TOKEN}:port/"), format!("{TOKEN}://hooks/")] {
        let fault = the_fault("TARGET_URL", &url);
        assert!(!fault.contains(TOKEN), "{fault}");
    }
}

#[test]
fn settings_that_are_printed_show_no_password_and_no_token() {
    let (redis, target) = (format!("redis://user:{PASSWORD}@cache"), format!("https://hooks.internal/{TOKEN}"));
    let settings = read(&[REQUIRED, &[("REDIS_URL", &redis), ("TARGET_URL", &target)]]).unwrap();
    let printed = format!("{settings:?}");
    assert!(!printed.contains(PASSWORD) && !printed.contains(TOKEN), "{printed}");
}

/// What the function says when it is started with these settings, and ends.
async fn start(settings: &[Settings<'_>]) -> String {
    let function = tokio::process::Command::new(env!("CARGO_BIN_EXE_idempotent-sqs"))
        .env_clear()
        .envs(settings.iter().flat_map(|settings| settings.iter().copied()))
        .kill_on_drop(true)
        .output();
    let ended = soon(function).await.unwrap();
    assert_eq!(ended.status.code(), Some(1));
    String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap()
}

#[tokio::test]
async fn a_function_with_faults_in_its_settings_names_them_all_and_does_not_start() {
    let redis = format!("redis://user:{PASSWORD}@cache:port");
    for format in ["JSON", "Text"] {
        let said = start(&[ALL_WRONG, &[("REDIS_URL", &redis), ("AWS_LAMBDA_LOG_FORMAT", format)]]).await;
        for (name, _) in ALL_WRONG.iter().chain(REQUIRED) {
            let name = name.replace("AWS_LAMBDA_FUNCTION_NAME", "IDEMPOTENCY_NAMESPACE");
            assert!(said.contains(&format!("  - {name}")), "{name} is missing in {said}");
        }
        assert!(!said.contains(PASSWORD), "{said}");
    }
}
