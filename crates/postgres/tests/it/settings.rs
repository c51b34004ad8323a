//! Settings from the environment, and their errors.

use std::collections::HashMap;
use std::time::Duration;

use idempotent_sqs::config::{Config, ConfigError, Environment};
use idempotent_sqs_postgres::{BackfillConfig, Database, InboxConfig, OutagePolicy};

use harness::lambda::PASSWORD;

type Settings<'a> = &'a [(&'static str, &'static str)];

const REQUIRED: Settings = &[
    ("REDIS_URL", "redis://cache.internal:6379"),
    ("DATABASE_URL", "postgres://payer:SECRET-PASSWORD@db.internal/payments"),
    ("IDEMPOTENCY_NAMESPACE", "ledger"),
];

fn environment(settings: &[Settings]) -> Environment {
    let settings: HashMap<_, _> = settings
        .iter()
        .flat_map(|settings| settings.iter())
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    Environment::new(move |name| settings.get(name).cloned())
}

fn read(settings: &[Settings]) -> Result<InboxConfig, ConfigError> {
    let mut environment = environment(settings);
    let config = Config::read(&mut environment);
    let inbox = InboxConfig::read(&mut environment, config.as_ref());
    environment.finish(inbox)
}

#[test]
fn default_settings_are_as_documented() {
    let inbox = read(&[REQUIRED]).unwrap();
    assert!(inbox.database.url.uses_tls());
    assert_eq!(inbox.database.timeout, Duration::from_secs(2));
    assert_eq!(inbox.database.connections.get(), 16);
    assert_eq!(inbox.inbox.namespace, "ledger");
    assert_eq!(inbox.inbox.retention, Duration::from_secs(2_419_200));
    assert_eq!(inbox.without_redis, OutagePolicy::Refuse);
}

#[test]
fn every_setting_is_read() {
    let inbox = read(&[
        REQUIRED,
        &[
            ("DATABASE_TIMEOUT_MS", "250"),
            ("INBOX_RETENTION_SECONDS", "86400"),
            ("INBOX_WITHOUT_REDIS", "proceed"),
            ("BATCH_CONCURRENCY", "4"),
        ],
    ])
    .unwrap();
    assert_eq!(inbox.database.timeout, Duration::from_millis(250));
    assert_eq!(inbox.database.connections.get(), 4);
    assert_eq!(inbox.inbox.retention, Duration::from_hours(24));
    assert_eq!(inbox.without_redis, OutagePolicy::Proceed);
}

#[test]
fn all_errors_are_reported_at_once_without_a_password() {
    let errors = read(&[&[
        ("DATABASE_URL", "mysql://payer:SECRET-PASSWORD@db.internal"),
        ("DATABASE_TIMEOUT_MS", "0"),
        ("DATABASE_IAM", "perhaps"),
        ("DATABASE_SECRET_ARN", "password"),
        ("INBOX_RETENTION_SECONDS", "soon"),
        ("INBOX_WITHOUT_REDIS", "maybe"),
    ]])
    .unwrap_err()
    .to_string();
    for name in [
        "REDIS_URL",
        "IDEMPOTENCY_NAMESPACE",
        "DATABASE_URL is invalid (it does not start with postgres://)",
        "DATABASE_TIMEOUT_MS",
        "DATABASE_IAM is \"perhaps\": set it to true or false",
        "DATABASE_SECRET_ARN is invalid",
        "INBOX_RETENTION_SECONDS",
        "INBOX_WITHOUT_REDIS is \"maybe\": set it to refuse or proceed",
    ] {
        assert!(errors.contains(name), "{name} in {errors}");
    }
    assert!(!errors.contains(PASSWORD));
    let prefers = read(&[REQUIRED, &[("DATABASE_URL", "postgres://db.internal?sslmode=prefer")]]);
    assert!(prefers.unwrap_err().to_string().contains("sslmode"));
}

#[test]
fn the_database_has_one_source_of_credentials() {
    const IAM: (&str, &str) = ("DATABASE_IAM", "true");
    const SECRET: (&str, &str) =
        ("DATABASE_SECRET_ARN", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:payer");
    let url = |url| ("DATABASE_URL", url);
    let plain = url("postgres://payer@db.internal/payments");
    let has_source = |settings: Settings| read(&[REQUIRED, settings]).unwrap().database.credentials.is_some();
    assert!(!has_source(&[]));
    assert!(!has_source(&[plain, ("DATABASE_IAM", "false")]));
    assert!(has_source(&[plain, IAM]));
    assert!(has_source(&[plain, SECRET]));
    assert!(has_source(&[url("postgres://db.internal"), SECRET]), "the secret may have the user");
    for (settings, expected) in [
        (&[plain, IAM, SECRET][..], &["DATABASE_SECRET_ARN and DATABASE_IAM are both set"][..]),
        (&[SECRET], &["DATABASE_URL has a password, and the secret of DATABASE_SECRET_ARN replaces it"]),
        (&[IAM], &["DATABASE_URL has a password, and the token"]),
        (
            &[IAM, url("postgres://:SECRET-PASSWORD@a,b/?sslmode=disable")],
            &["has a password", "does not use TLS", "has no user", "does not have exactly one host"],
        ),
        (&[IAM, url("postgres://payer@127.0.0.1/payments")], &["does not use TLS"]),
        (
            &[plain, IAM, ("DATABASE_SECRET_ARN", "payer")],
            &["DATABASE_SECRET_ARN is invalid", "DATABASE_SECRET_ARN and DATABASE_IAM are both set"],
        ),
        (
            &[("DATABASE_SECRET_ARN", "payer")],
            &["DATABASE_SECRET_ARN is invalid", "DATABASE_URL has a password, and the secret"],
        ),
    ] {
        let error = read(&[REQUIRED, settings]).unwrap_err().to_string();
        assert!(expected.iter().all(|expected| error.contains(expected)) && !error.contains(PASSWORD), "{error}");
        assert!(error.contains(&format!("{} error(s)", expected.len())), "{error}");
    }
}

#[test]
fn printed_settings_contain_no_password() {
    let mut environment = environment(&[REQUIRED]);
    let config = Config::read(&mut environment);
    let inbox = InboxConfig::read(&mut environment, config.as_ref());
    assert!(!format!("{:?}", environment.finish(config.zip(inbox)).unwrap()).contains(PASSWORD));
}

#[test]
fn the_backfill_has_the_settings_of_the_function_and_a_rate() {
    let read = |settings: &[Settings]| {
        let mut environment = environment(settings);
        let config = BackfillConfig::read(&mut environment);
        environment.finish(config)
    };
    let settings = read(&[REQUIRED]).unwrap().backfill;
    assert_eq!((settings.namespace.as_str(), settings.rows_per_second.get()), ("ledger", 10_000));
    let set: Settings = &[
        ("BACKFILL_ROWS_PER_SECOND", "250"),
        ("IDEMPOTENCY_RETENTION_SECONDS", "3600"),
        ("IDEMPOTENCY_RESULT_MAX_BYTES", "100"),
    ];
    let settings = read(&[REQUIRED, set]).unwrap().backfill;
    assert_eq!(settings.rows_per_second.get(), 250);
    assert_eq!((settings.retention, settings.result_max_bytes), (Duration::from_hours(1), 100));
    let error = read(&[REQUIRED, &[("BACKFILL_ROWS_PER_SECOND", "1000001")]]).unwrap_err().to_string();
    assert!(error.contains("BACKFILL_ROWS_PER_SECOND") && error.contains("1000000"), "{error}");
}

#[test]
fn an_sslrootcert_that_cannot_be_used_is_an_error_at_start() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    for (file, why) in [("/nowhere/rds.pem", "No such file"), (empty.path().to_str().unwrap(), "no items found")] {
        let url = |mode: &str| format!("postgres://payer@db.internal/payments?sslrootcert={file}{mode}");
        let (used, unused) = (url("").leak(), url("&sslmode=disable").leak());
        let error = read(&[REQUIRED, &[("DATABASE_URL", used)]]).unwrap_err().to_string();
        assert!(error.contains("the sslrootcert of DATABASE_URL cannot be used") && error.contains(why), "{error}");
        assert!(read(&[REQUIRED, &[("DATABASE_URL", unused)]]).is_ok());
    }
}

#[tokio::test]
async fn a_database_can_have_any_number_of_connections() {
    let inbox = read(&[REQUIRED, &[("AWS_LAMBDA_MAX_CONCURRENCY", "18446744073709551615")]]).unwrap();
    assert_eq!(inbox.database.connections.get(), usize::MAX);
    drop(Database::new(&inbox.database));
}
