//! The number of connections, and waiting for one.

use super::*;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use idempotent_sqs::config::{Config, Environment};
use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};
use idempotent_sqs::sqs::{Batch, BatchSettings, KeySource};
use idempotent_sqs_postgres::InboxConfig;

#[tokio::test]
async fn connections_are_kept_and_limited_by_the_settings() {
    let base = base().await;
    let mut settings = database_settings(&base.url());
    settings.connections = NonZeroUsize::new(3).unwrap();
    let inbox = inbox(Pay::default(), Database::new(&settings));
    let runs = (0..30).map(|number| {
        let inbox = &inbox;
        async move { done(&deliver(&flushed(), inbox, &format!("pay_{number}")).await).len() }
    });
    futures_util::future::join_all(runs).await;
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND \
                       application_name = 'idempotent-sqs'";
    assert_eq!(base.count(connections).await, 3);
}

/// Two inboxes on one connection: one whose work waits, and one whose work does not.
fn on_one_connection(base: &Base, gate: &Arc<Gate>) -> (Inbox<Pay>, Inbox<Pay>) {
    let mut settings = database_settings(&base.url());
    settings.connections = NonZeroUsize::MIN;
    settings.timeout = Duration::from_millis(200);
    let database = Database::new(&settings);
    let held = Pay { after: Some(gate.clone()), ..Pay::default() };
    (inbox(held, database.clone()), inbox(Pay::default(), database))
}

#[tokio::test]
async fn a_message_waits_for_a_free_connection_beyond_the_timeout_of_the_database() {
    let (base, gate) = (base().await, Arc::new(Gate::default()));
    let (held, waits) = on_one_connection(&base, &gate);
    let (first, second) = (flushed(), flushed());
    let (first, second, ()) = soon(async {
        tokio::join!(
            deliver(&first, &held, "first"),
            async {
                gate.reached.notified().await;
                deliver(&second, &waits, "second").await
            },
            async {
                tokio::time::sleep(SECOND).await;
                gate.open.notify_one();
            }
        )
    })
    .await;
    assert_eq!((done(&first), done(&second)), (&b"receipt of first"[..], &b"receipt of second"[..]));
}

#[tokio::test]
async fn a_message_without_a_free_connection_until_its_deadline_is_not_counted_and_fails_no_other() {
    let (base, gate) = (base().await, Arc::new(Gate::default()));
    let (held, waits) = on_one_connection(&base, &gate);
    let (first, second) = (flushed(), flushed());
    let short = || delivery("second").deadline(Deadline::within(2 * SECOND));
    let (first, ()) = soon(async {
        tokio::join!(deliver(&first, &held, "first"), async {
            gate.reached.notified().await;
            for _ in 0..2 {
                let report = second.run(&short(), &waits, &Message::default()).await.unwrap();
                let Outcome::Unavailable { error } = &report.outcome else { panic!("{report:?}") };
                assert!(error.to_string().contains("no connection to PostgreSQL became free"), "{error}");
            }
            gate.open.notify_one();
        })
    })
    .await;
    done(&first);
    let report = deliver(&second, &waits, "second").await;
    done(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_server_with_too_many_connections_fails_no_message_that_has_a_connection() {
    let base = base().await;
    let user = format!("limited_{}", base.name);
    let limit =
        format!("CREATE ROLE {user} LOGIN CONNECTION LIMIT 1; GRANT ALL ON idempotency_inbox, effects TO {user}");
    base.client.batch_execute(&limit).await.unwrap();
    let (gate, database) = (Arc::new(Gate::default()), database(&base.url().replace("app@", &format!("{user}@"))));
    let held = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database.clone());
    let quick = inbox(Pay::default(), database);
    let (first, second) = (flushed(), flushed());
    let (first, ()) = soon(async {
        tokio::join!(deliver(&first, &held, "first"), async {
            gate.reached.notified().await;
            let report = deliver(&second, &quick, "second").await;
            let Outcome::Unavailable { error } = &report.outcome else { panic!("{report:?}") };
            assert!(error.to_string().contains("53300"), "{error}");
            gate.open.notify_one();
        })
    })
    .await;
    done(&first);
    let report = deliver(&second, &quick, "second").await;
    done(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_server_with_too_many_connections_does_not_hold_up_the_other_messages_of_a_batch() {
    let base = base().await;
    let user = format!("limited_{}", base.name);
    let limit =
        format!("CREATE ROLE {user} LOGIN CONNECTION LIMIT 1; GRANT ALL ON idempotency_inbox, effects TO {user}");
    base.client.batch_execute(&limit).await.unwrap();
    let (gate, url) = (Arc::new(Gate::default()), base.url().replace("app@", &format!("{user}@")));
    let held = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&url));
    let settings = with!(BatchSettings::default(), keys = vec![KeySource::MessageId], concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(flushed(), inbox(Pay::default(), database(&url)), settings);
    let messages = ["second", "third"].map(|id| Message::new(id, "{}"));
    let first = flushed();
    let (first, ()) = soon(async {
        tokio::join!(deliver(&first, &held, "first"), async {
            gate.reached.notified().await;
            let reports = batch.run(&messages, Deadline::within(TIME)).await.unwrap();
            // Each has tried.
            assert!(reports.iter().all(|report| report.reason.contains("53300")), "{reports:?}");
            gate.open.notify_one();
        })
    })
    .await;
    done(&first);
}

/// Counts its logins, and limits their sessions.
#[derive(Debug)]
struct Sessions {
    longest: Option<Duration>,
    logins: AtomicUsize,
}

impl CredentialsSource for Sessions {
    fn login<'a>(&'a self, _: Option<&'a Login>) -> LoginFuture<'a> {
        self.logins.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(Login { user: None, password: String::new() }) })
    }

    fn max_session(&self) -> Option<Duration> {
        self.longest
    }
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_the_longest_session_of_its_login() {
    let base = base().await;
    for (longest, logins) in [(None, 1), (Some(TIME), 1), (Some(Duration::ZERO), 3)] {
        let source = Arc::new(Sessions { longest, logins: AtomicUsize::new(0) });
        let credentials: Arc<dyn CredentialsSource> = source.clone();
        let settings = with!(database_settings(&base.url()), credentials = Some(credentials));
        let inbox = inbox(Pay::default(), Database::new(&settings));
        for key in ["a", "b", "c"] {
            deliver(&flushed(), &inbox, key).await;
        }
        assert_eq!(source.logins.load(Ordering::SeqCst), logins, "{longest:?}");
    }
}

#[tokio::test]
async fn a_database_timeout_of_any_length_can_be_set() {
    let base = base().await;
    let credentials: Arc<dyn CredentialsSource> = Arc::new(Sessions { longest: None, logins: AtomicUsize::new(0) });
    for credentials in [None, Some(credentials)] {
        let settings = with!(database_settings(&base.url()), timeout = Duration::MAX, credentials = credentials);
        let inbox = inbox(Pay::default(), Database::new(&settings));
        done(&run(&flushed(), &inbox).await);
        base.client.batch_execute("DELETE FROM idempotency_inbox").await.unwrap();
    }
}

#[test]
fn the_pool_has_a_connection_for_each_concurrent_message_of_the_process() {
    let connections = |invocations: Option<&'static str>| {
        let settings = move |name: &str| {
            let value = match name {
                "REDIS_URL" => "redis://127.0.0.1",
                "DATABASE_URL" => "postgres://app@127.0.0.1/payments",
                "IDEMPOTENCY_NAMESPACE" => "payments",
                "BATCH_CONCURRENCY" => "4",
                "AWS_LAMBDA_MAX_CONCURRENCY" => invocations?,
                _ => return None,
            };
            Some(value.to_owned())
        };
        let mut environment = Environment::new(settings);
        let config = Config::read(&mut environment);
        let inbox = InboxConfig::read(&mut environment, config.as_ref());
        environment.finish(inbox).unwrap().database.connections.get()
    };
    assert_eq!(connections(None), 4);
    assert_eq!(connections(Some("8")), 32);
    for as_the_runtime_passes_it_over in ["", "0", "many"] {
        assert_eq!(connections(Some(as_the_runtime_passes_it_over)), 4);
    }
}
