//! Errors in settings: all are reported together, name the valid values and contain no secrets.

use std::fs;

use super::{REQUIRED, Settings, error_of, errors, read};
use harness::http::TOKEN;
use harness::lambda::PASSWORD;
use harness::soon;

/// An invalid value for every optional setting, and for two that other libraries read.
const ALL_INVALID: Settings = &[
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
    ("METRICS_NAMESPACE", "AWS/SQS"),
    // A directory.
    ("SSL_CERT_FILE", "/"),
];

#[test]
fn a_missing_setting_is_reported_with_an_example() {
    assert_eq!(
        errors(&[]),
        [
            "REDIS_URL is missing: set it to redis://HOST:6379, rediss://HOST:6379 for TLS, or \
             redis+sentinel://HOST:26379/SERVICE for Sentinel",
            "IDEMPOTENCY_NAMESPACE is missing: set it to the name of the logical consumer, such as payments",
            "TARGET_URL is missing: set it to the https:// address of the webhook",
        ]
    );
}

#[test]
fn no_error_hides_another() {
    let credentials = [
        ("REDIS_IAM_USER", "payments"),
        ("REDIS_IAM_CACHE", "idempotency"),
        ("REDIS_SECRET_ARN", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis"),
    ];
    for url in ["", "http://cache"] {
        let required: Settings = &[("REDIS_URL", url), ("METRICS_NAMESPACE", "AWS/SQS")];
        let errors = errors(&[&credentials, required]);
        for expected in [
            "REDIS_URL is ",
            "IDEMPOTENCY_NAMESPACE is missing",
            "REDIS_SECRET_ARN and REDIS_IAM_USER are both set",
            "METRICS_NAMESPACE is invalid",
            "TARGET_URL is missing",
        ] {
            assert!(errors.iter().any(|error| error.starts_with(expected)), "{expected}: {errors:?}");
        }
        assert_eq!(errors.len(), 5, "{errors:?}");
    }
    let errors = errors(&[&[("METRICS_NAMESPACE", "payments"), ("IDEMPOTENCY_NAMESPACE", "z\u{fc}rich")]]);
    assert!(errors.iter().any(|error| error.contains("invalid as a dimension")), "{errors:?}");
}

#[test]
fn a_missing_url_hides_no_error_of_the_results() {
    let bucket: Settings =
        &[("RESULT_BUCKET", "results"), ("RESULT_PREFIX", "../other/"), ("AWS_REGION", "eu-central-1")];
    let errors = errors(&[&REQUIRED[1..], bucket]);
    assert!(errors[0].starts_with("REDIS_URL is missing"), "{errors:?}");
    assert!(errors[1].starts_with("RESULT_PREFIX is invalid"), "{errors:?}");
    assert_eq!(errors.len(), 2, "{errors:?}");
}

#[test]
fn an_invalid_login_does_not_hide_that_it_excludes_another_setting() {
    let (user, cache) = (("REDIS_IAM_USER", "role/payments"), ("REDIS_IAM_CACHE", "idempotency"));
    let arn = ("REDIS_SECRET_ARN", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis");
    let (with_tls, with_password) = (("REDIS_URL", "rediss://cache"), ("REDIS_URL", "rediss://:secret@cache"));
    let cases: [(Settings, &str, &str); 4] = [
        (
            &[with_tls, user, cache, arn],
            "REDIS_IAM_USER is invalid",
            "REDIS_SECRET_ARN and REDIS_IAM_USER are both set",
        ),
        (&[user, cache], "REDIS_IAM_USER is invalid", "REDIS_URL does not use TLS"),
        (&[with_password, cache], "REDIS_IAM_USER is missing", "REDIS_URL has a user or a password"),
        (&[with_password, ("REDIS_SECRET_ARN", "redis")], "REDIS_SECRET_ARN is invalid", "REDIS_URL has a password"),
    ];
    for (settings, invalid, excluded) in cases {
        let errors = errors(&[REQUIRED, settings]);
        for expected in [invalid, excluded] {
            assert!(errors.iter().any(|error| error.starts_with(expected)), "{expected}: {errors:?}");
        }
        assert_eq!(errors.len(), 2, "{errors:?}");
    }
}

#[test]
fn settings_that_exclude_each_other_hide_no_others_that_do() {
    let errors = errors(&[
        REQUIRED,
        &[
            ("REDIS_URL", "redis://:secret@cache"),
            ("REDIS_IAM_USER", "payments"),
            ("REDIS_IAM_CACHE", "idempotency"),
            ("REDIS_SECRET_ARN", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis"),
        ],
    ]);
    let expected = [
        "REDIS_SECRET_ARN and REDIS_IAM_USER are both set",
        "REDIS_URL does not use TLS",
        "REDIS_URL has a user or a password, and REDIS_IAM_USER",
        "REDIS_URL has a password, and the secret",
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:?}");
    assert!(errors.iter().zip(expected).all(|(error, expected)| error.starts_with(expected)), "{errors:?}");
}

#[test]
fn a_namespace_with_a_colon_is_rejected() {
    let error = error_of("IDEMPOTENCY_NAMESPACE", "payments:eu");
    assert!(error.contains("set it to a name without one"), "{error}");
}

#[test]
fn names_that_cloudwatch_rejects_are_errors_if_metrics_are_enabled() {
    for namespace in ["AWS/SQS", ":payments", "payments\"", "z\u{fc}rich", &"n".repeat(256)] {
        let error = error_of("METRICS_NAMESPACE", namespace);
        assert!(error.starts_with("METRICS_NAMESPACE is invalid: set it to a name"), "{error}");
    }
    for consumer in ["z\u{fc}rich", &"n".repeat(1025)] {
        assert!(read(&[REQUIRED, &[("IDEMPOTENCY_NAMESPACE", consumer)]]).is_ok(), "valid without metrics");
        let settings: Settings = &[("METRICS_NAMESPACE", "idempotent-sqs"), ("IDEMPOTENCY_NAMESPACE", consumer)];
        let errors = errors(&[REQUIRED, settings]);
        assert!(errors[0].starts_with("IDEMPOTENCY_NAMESPACE is invalid as a dimension"), "{errors:?}");
    }
}

#[test]
fn each_error_names_the_valid_values() {
    for (name, invalid, valid) in [
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
        ("REDIS_URL", "cache.internal:6379", "redis://HOST:6379, rediss://HOST:6379 for TLS"),
        ("REDIS_URL", "unix:///run/redis.sock", "redis+sentinel://HOST:26379/SERVICE for Sentinel"),
        ("REDIS_URL", "redis+sentinel://cache.internal", "the name of the service is missing after the sentinels"),
        ("REDIS_URL", "rediss://cache.internal/#insecure", "certificates are always verified"),
        ("REDIS_IAM_SERVERLESS", "yes", "true or false"),
        ("REDIS_IAM_SESSION_SECONDS", "0", "a whole number from 1 to 43200"),
        ("REDIS_IAM_SESSION_SECONDS", "43201", "a whole number from 1 to 43200"),
        ("REDIS_SECRET_ARN", "redis-password", "arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME"),
    ] {
        // Settings without which that one is an error.
        let others: Settings = match name {
            "PAYLOAD_MAX_BYTES" => &[("PAYLOAD_BUCKETS", "payloads"), ("AWS_REGION", "eu-central-1")],
            "REDIS_IAM_SESSION_SECONDS" => &[
                ("REDIS_URL", "rediss://cache.internal"),
                ("REDIS_IAM_USER", "payments"),
                ("REDIS_IAM_CACHE", "idempotency"),
            ],
            _ => &[],
        };
        let errors = errors(&[REQUIRED, others, &[(name, invalid)]]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        let error = &errors[0];
        assert!(error.starts_with(name) && error.contains(valid), "{name}={invalid}: {error}");
        assert_eq!(
            error.matches(&format!("{invalid:?}")).count().max(1),
            1,
            "the value is quoted more than once: {error}"
        );
    }
}

#[test]
fn buckets_of_payloads_are_an_error_if_no_pointer_is_followed() {
    let settings: Settings =
        &[("PAYLOAD_BUCKETS", "payloads"), ("IDEMPOTENCY_ENVELOPE", "none"), ("AWS_REGION", "eu-central-1")];
    let errors = errors(&[REQUIRED, settings]);
    assert!(errors.len() == 1 && errors[0].starts_with("PAYLOAD_BUCKETS is set, and"), "{errors:?}");
}

#[test]
fn a_prefix_of_results_that_no_object_can_have_is_an_error() {
    let bucket: Settings = &[("RESULT_BUCKET", "results"), ("AWS_REGION", "eu-central-1")];
    for (name, invalid) in [
        ("RESULT_PREFIX", "../results/"),
        ("RESULT_PREFIX", "a/./"),
        ("RESULT_PREFIX", &*"p".repeat(801 - "payments-function".len())),
        ("IDEMPOTENCY_NAMESPACE", ".."),
    ] {
        let errors = errors(&[REQUIRED, bucket, &[(name, invalid)]]);
        assert!(errors.len() == 1 && errors[0].starts_with("RESULT_PREFIX is invalid"), "{invalid}: {errors:?}");
    }
    // 800 bytes with the namespace.
    let longest = "p".repeat(800 - "payments-function".len());
    for prefix in ["results/", "/results/", "a//..b/", ".", "", &longest] {
        assert!(read(&[REQUIRED, bucket, &[("RESULT_PREFIX", prefix)]]).is_ok(), "{prefix}");
    }
}

#[test]
fn a_dead_letter_queue_whose_url_has_no_account_or_no_name_is_an_error() {
    for url in [
        "https://sqs.eu-central-1.amazonaws.com/payments-dead-letters",
        "https://sqs.eu-central-1.amazonaws.com/queues/payments-dead-letters",
        "https://sqs.eu-central-1.amazonaws.com/123456789012/",
        "https://sqs.eu-central-1.amazonaws.com/123456789012",
        "https://sqs.eu-central-1.amazonaws.com/123456789012/payments.fifo.dead",
        "https:///123456789012/payments-dead-letters",
        "arn:aws:sqs:eu-central-1:123456789012:payments-dead-letters",
        "payments-dead-letters",
    ] {
        let error = error_of("DEAD_LETTER_QUEUE_URL", url);
        assert!(
            error.starts_with("DEAD_LETTER_QUEUE_URL is invalid: set it to the URL of an SQS queue"),
            "{url}: {error}"
        );
    }
    for url in [
        "https://sqs.eu-central-1.amazonaws.com/123456789012/payments-dead-letters.fifo",
        "http://localhost:4566/000000000000/payments_dead",
    ] {
        let (config, _) = read(&[REQUIRED, &[("DEAD_LETTER_QUEUE_URL", url)]]).unwrap();
        assert!(format!("{:?}", config.batch.dead_letter_queue).contains(url));
    }
}

#[test]
fn each_error_in_the_s3_settings_names_the_valid_values() {
    for (invalid, expected) in [
        (
            [("PAYLOAD_BUCKETS", "payloads-"), ("AWS_REGION", "eu-central-1")],
            "PAYLOAD_BUCKETS: \"payloads-\" is not the name of an S3",
        ),
        (
            [("PAYLOAD_BUCKETS", "pay..loads"), ("AWS_REGION", "eu-central-1")],
            "PAYLOAD_BUCKETS: \"pay..loads\" is not the name of an S3",
        ),
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
        let errors = errors(&[REQUIRED, &invalid]);
        assert!(errors.len() == 1 && errors[0].starts_with(expected), "{invalid:?}: {errors:?}");
    }
    for address in ["s3.internal", "s3://results", "ftp://s3.internal"] {
        let invalid = [("RESULT_BUCKET", "results"), ("AWS_REGION", "eu-central-1"), ("AWS_ENDPOINT_URL_S3", address)];
        let errors = errors(&[REQUIRED, &invalid]);
        assert!(errors.len() == 1 && errors[0].contains("an http:// or https:// address"), "{errors:?}");
    }
}

#[test]
fn a_pointer_with_an_escape_that_no_name_has_is_an_error() {
    for (name, value) in [
        ("IDEMPOTENCY_KEY", "body:/a~2b,messageId"),
        ("IDEMPOTENCY_KEY", "body:/a~,messageId"),
        ("IDEMPOTENCY_FINGERPRINT", "body:/currency,/amount~2eur"),
    ] {
        let error = error_of(name, value);
        assert!(error.contains("~0 for each ~ and ~1 for each /"), "{error}");
    }
    read(&[REQUIRED, &[("IDEMPOTENCY_KEY", "body:/a~1b~0,messageId")]]).unwrap();
}

#[test]
fn a_prefix_of_results_without_their_bucket_is_an_error() {
    let error = error_of("RESULT_PREFIX", "results/");
    assert!(error.starts_with("RESULT_PREFIX is set, and RESULT_BUCKET is not"), "{error}");
}

#[test]
fn a_limit_of_payloads_without_their_buckets_is_an_error() {
    let error = error_of("PAYLOAD_MAX_BYTES", "400000");
    assert!(error.starts_with("PAYLOAD_MAX_BYTES is set, and PAYLOAD_BUCKETS is not"), "{error}");
}

/// TLS reads the path with the white space around it.
#[test]
fn a_file_of_certificates_that_tls_cannot_use_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let [with, without] = ["with.pem", "without.pem"].map(|name| directory.path().join(name));
    fs::write(&with, "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n").unwrap();
    fs::write(&without, "no certificate").unwrap();
    let [with, without] = [with, without].map(|path| path.to_str().unwrap().to_owned());
    read(&[REQUIRED, &[("SSL_CERT_FILE", &with)]]).unwrap();
    // The directory may have certificates.
    read(&[REQUIRED, &[("SSL_CERT_FILE", &without), ("SSL_CERT_DIR", "/etc/ssl/certs")]]).unwrap();
    let error = error_of("SSL_CERT_FILE", &without);
    assert!(error.starts_with("SSL_CERT_FILE has no certificate: set it to a file of PEM"), "{error}");
    let error = error_of("SSL_CERT_FILE", &format!(" {with}"));
    assert!(error.starts_with("SSL_CERT_FILE cannot be read"), "{error}");
}

#[test]
fn all_errors_are_reported_together_each_once() {
    for required in [&[][..], &[("REDIS_URL", "http://cache"), ("TARGET_URL", "somewhere")]] {
        let errors = errors(&[ALL_INVALID, required]);
        let count = |start: &str| errors.iter().filter(|error| error.starts_with(start)).count();
        for (name, _) in ALL_INVALID.iter().chain(REQUIRED) {
            let name = name.replace("AWS_LAMBDA_FUNCTION_NAME", "IDEMPOTENCY_NAMESPACE");
            let times = if name == "REDIS_SECRET_ARN" { 2 } else { 1 };
            assert_eq!(count(&name), times, "{name} in {errors:#?}");
        }
        for other in ["AWS_REGION is missing", "REDIS_SECRET_ARN and REDIS_IAM_USER are both set"] {
            assert_eq!(count(other), 1, "{other} in {errors:#?}");
        }
        assert_eq!(errors.len(), ALL_INVALID.len() + REQUIRED.len() + 2, "{errors:#?}");
    }
}

#[test]
fn no_error_contains_a_password_or_a_token() {
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
        let error = error_of("REDIS_URL", &url);
        assert!(!error.contains(PASSWORD), "{error}");
    }
    for url in [format!("hooks.internal/{TOKEN}"), format!("https://{TOKEN}:port/"), format!("{TOKEN}://hooks/")] {
        let error = error_of("TARGET_URL", &url);
        assert!(!error.contains(TOKEN), "{error}");
    }
}

#[test]
fn the_debug_output_of_settings_contains_no_password_or_token() {
    let (redis, target) = (format!("redis://user:{PASSWORD}@cache"), format!("https://hooks.internal/{TOKEN}"));
    let settings = read(&[REQUIRED, &[("REDIS_URL", &redis), ("TARGET_URL", &target)]]).unwrap();
    let printed = format!("{settings:?}");
    assert!(!printed.contains(PASSWORD) && !printed.contains(TOKEN), "{printed}");
}

/// The output of a function that exits at startup because of these settings.
async fn output_of(settings: &[Settings<'_>]) -> String {
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
async fn a_function_that_lambda_did_not_start_says_how_to_start_it() {
    let output = output_of(&[REQUIRED]).await;
    assert!(output.contains("with `cargo lambda watch`"), "{output}");
}

#[tokio::test]
async fn a_function_with_invalid_settings_logs_every_error_and_does_not_start() {
    let redis = format!("redis://user:{PASSWORD}@cache:port");
    for format in ["JSON", "Text"] {
        let output = output_of(&[ALL_INVALID, &[("REDIS_URL", &redis), ("AWS_LAMBDA_LOG_FORMAT", format)]]).await;
        for (name, _) in ALL_INVALID.iter().chain(REQUIRED) {
            let name = name.replace("AWS_LAMBDA_FUNCTION_NAME", "IDEMPOTENCY_NAMESPACE");
            assert!(output.contains(&format!("  - {name}")), "{name} is missing in {output}");
        }
        assert!(!output.contains(PASSWORD), "{output}");
    }
}
