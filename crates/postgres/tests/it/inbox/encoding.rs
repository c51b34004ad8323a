//! Keys and namespaces in a database whose encoding is not UTF8.

use super::*;
use std::num::NonZeroUsize;

use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, KeySource, MessageOutcome, MessageReport};

/// As [`base`], with the encoding LATIN1.
async fn latin1() -> Base {
    let base = Base::in_latin1().await;
    base.client.batch_execute(&migration()).await.unwrap();
    base.client.batch_execute("CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL)").await.unwrap();
    base
}

fn of_consumer(namespace: &str, base: &Base) -> Inbox<Pay> {
    let settings = with!(settings(), namespace = namespace.into());
    Inbox::new(Pay::default(), database(&base.url()), settings)
}

/// The reports on messages with these keys, in one batch.
async fn reports(batch: &Batch<MemoryStore, Inbox<Pay>>, keys: &[&str]) -> Vec<MessageReport> {
    let message = |key: &&str| with!(Message::default(), id = (*key).to_owned(), body = Some("12.50".into()));
    batch.run(&keys.iter().map(message).collect::<Vec<_>>(), Deadline::within(TIME)).await.unwrap()
}

#[tokio::test]
async fn a_key_that_the_encoding_cannot_represent_fails_only_its_own_message() {
    let base = latin1().await;
    for namespace in ["payments", "größe"] {
        let settings = with!(BatchSettings::default(), keys = vec![KeySource::MessageId]);
        let batch = Batch::new(on(MemoryStore::default()), of_consumer(namespace, &base), settings);
        let keys = ["plain", "größe", "💸", "after"];
        let first = reports(&batch, &keys).await;
        for (report, key) in first.iter().zip(keys) {
            assert_eq!(report.disposition == Disposition::Done, key != "💸", "{key}: {}", report.reason);
        }
        let reason = &first[2].reason;
        assert!(first[2].failed_permanently && reason.contains("UTF8") && reason.contains("22P05"), "{reason}");
        assert_eq!(reports(&batch, &["💸"]).await[0].outcome, MessageOutcome::Failed);
        assert_eq!(reports(&batch, &["größe"]).await[0].outcome, MessageOutcome::Duplicate);
    }
    assert_eq!(base.count(EFFECTS).await, 6);
}

#[tokio::test]
async fn a_namespace_that_the_encoding_cannot_represent_fails_the_invocation_and_counts_no_attempt() {
    let base = latin1().await;
    let inbox = of_consumer("💸", &base);
    let error = inbox.check().await.unwrap_err().to_string();
    assert!(error.contains("IDEMPOTENCY_NAMESPACE") && error.contains("UTF8"), "{error}");
    let idempotency = flushed();
    for key in ["plain", "💸", "💸"] {
        let error = idempotency.run(&delivery(key), &inbox, &Message::default()).await.unwrap_err();
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(reason.contains("IDEMPOTENCY_NAMESPACE"), "{reason}");
    }
    let report = deliver(&idempotency, &of_consumer("payments", &base), "plain").await;
    done(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_key_that_the_encoding_cannot_represent_holds_up_no_other_message_while_the_table_is_locked() {
    let base = latin1().await;
    let settings = with!(BatchSettings::default(), keys = vec![KeySource::MessageId], concurrency = NonZeroUsize::MIN);
    let database = Database::new(&with!(database_settings(&base.url()), timeout = Duration::from_millis(300)));
    let batch = Batch::new(on(MemoryStore::default()), inbox(Pay::default(), database), settings);
    // The statements of the inbox are prepared, so the server finds the character before it waits for the lock.
    reports(&batch, &["plain"]).await;
    // The second time, the store says that the key has failed, and the row is looked up.
    for _ in 0..2 {
        base.client.batch_execute("BEGIN; LOCK TABLE idempotency_inbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let locked = reports(&batch, &["💸", "after"]).await;
        base.client.batch_execute("COMMIT").await.unwrap();
        // Each has tried.
        assert!(locked.iter().all(|report| report.reason.contains("55P03")), "{locked:?}");
        reports(&batch, &["💸"]).await;
    }
    assert_eq!(reports(&batch, &["💸"]).await[0].outcome, MessageOutcome::Failed);
    assert_eq!(base.count(EFFECTS).await, 1);
}
