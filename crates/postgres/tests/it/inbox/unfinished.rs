//! Rows that a work committed without a result, by a COMMIT of its own.

use super::*;
use idempotent_sqs::idempotency::WorkErrorKind;
use idempotent_sqs_testing::attempt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the reason of such a failure tells an operator to look at.
const REASON: &str = "result IS NULL";

/// How a work may end.
const ENDS: [Option<fn() -> WorkError>; 5] = [
    None,
    Some(|| WorkError::retryable("not now")),
    Some(|| WorkError::unavailable("not now")),
    Some(|| WorkError::uncertain("no answer from elsewhere")),
    Some(|| WorkError::permanent("no such account")),
];

/// A work that takes effect, commits by itself, and then ends as told.
fn commits_by_itself(fails: Option<fn() -> WorkError>) -> Pay {
    Pay { also: Some("COMMIT"), fails, ..Pay::default() }
}

fn uncertain(report: &Report) -> String {
    match &report.outcome {
        Outcome::Failed { error, uncertain: true } => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A row that a transaction has committed without a result.
async fn leave_unfinished(base: &Base) {
    run(&flushed(), &inbox(commits_by_itself(None), database(&base.url()))).await;
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (1, 1));
}

#[tokio::test]
async fn a_work_that_commits_by_itself_is_uncertain_however_it_ends_and_never_runs_again() {
    for end in ENDS {
        let base = base().await;
        let reason = uncertain(&run(&flushed(), &inbox(commits_by_itself(end), database(&base.url()))).await);
        assert!(reason.contains("the work executed COMMIT or ROLLBACK"), "{reason}");
        // Whatever the store remembers of it.
        for _ in 0..2 {
            let reason = uncertain(&run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await);
            assert!(reason.contains(REASON), "{reason}");
        }
        assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (1, 1));
    }
}

#[tokio::test]
async fn a_work_that_rolls_back_by_itself_is_uncertain_however_it_ends_and_runs_again_as_a_recovery() {
    for end in ENDS {
        let (base, idempotency) = (base().await, flushed());
        let rolls_back = Pay { also: Some("ROLLBACK"), fails: end, ..Pay::default() };
        let reason = uncertain(&run(&idempotency, &inbox(rolls_back, database(&base.url()))).await);
        assert!(reason.contains("the work executed COMMIT or ROLLBACK"), "{reason}");
        let next = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
        assert!(next.recovery && !done(&next).is_empty());
    }
}

#[tokio::test]
async fn an_unfinished_row_fails_its_message_with_its_reason_when_the_attempts_end() {
    let base = base().await;
    let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), max_attempts = 2));
    leave_unfinished(&base).await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    for _ in 0..2 {
        uncertain(&run(&idempotency, &inbox).await);
    }
    // The attempts are used up, so that the store alone would fail it without a reason.
    match run(&idempotency, &inbox).await.outcome {
        Outcome::FailedPermanently { error, .. } | Outcome::Unavailable { error } => {
            assert!(error.to_string().contains(REASON), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn the_inbox_does_not_say_that_an_unfinished_row_is_done_or_that_it_is_not() {
    let base = base().await;
    leave_unfinished(&base).await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    let attempt = with!(attempt("pay_1"), fingerprint = Fingerprint::of(b"12.50 EUR"));
    let error = OwnRecord::<Message>::recorded(&inbox, &attempt, Instant::now() + TIME).await.unwrap_err();
    assert_eq!(error.kind(), WorkErrorKind::Uncertain);
    assert!(error.to_string().contains(REASON), "{error}");
}

#[tokio::test]
async fn another_payload_under_the_key_of_an_unfinished_row_is_a_mismatch() {
    let base = base().await;
    leave_unfinished(&base).await;
    let other = delivery("pay_1").fingerprint(Fingerprint::of(b"99.00 EUR"));
    let report =
        flushed().run(&other, &inbox(Pay::default(), database(&base.url())), &Message::default()).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch), "{report:?}");
}

#[tokio::test]
async fn an_operator_settles_an_unfinished_row_by_a_result_or_by_its_removal() {
    let base = base().await;
    leave_unfinished(&base).await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    base.client.batch_execute("UPDATE idempotency_inbox SET result = ''").await.unwrap();
    assert_eq!(duplicate(&run(&flushed(), &inbox).await), b"");
    base.client.batch_execute("DELETE FROM idempotency_inbox").await.unwrap();
    done(&run(&flushed(), &inbox).await);
    assert_eq!(base.count(EFFECTS).await, 2);
}

#[tokio::test]
async fn a_result_of_no_bytes_is_a_finished_one() {
    let base = base().await;
    let inbox = inbox(Silent, database(&base.url()));
    assert_eq!(done(&run(&flushed(), &inbox).await), b"");
    assert_eq!(duplicate(&run(&flushed(), &inbox).await), b"");
}

/// Has nothing to say.
struct Silent;

impl TransactionalWork<Message> for Silent {
    async fn run(&self, _: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn an_unfinished_row_outlives_its_retention() {
    let base = base().await;
    leave_unfinished(&base).await;
    base.client.batch_execute("UPDATE idempotency_inbox SET done_at = now() - interval '29 days'").await.unwrap();
    assert_eq!(inbox(Pay::default(), database(&base.url())).delete_expired().await.unwrap(), 0);
    uncertain(&run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await);
}

/// A way to the server on which no transaction begins: what should begin it is refused as it stands.
async fn without_begins(base: &Base) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (port, server_port) = (listener.local_addr().unwrap().port(), base.port);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
            let ((mut requests, mut to_client), (mut replies, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut replies, &mut to_client).await });
            tokio::spawn(async move {
                let mut chunk = vec![0; 65_536];
                while let Ok(length @ 1..) = requests.read(&mut chunk).await {
                    let chunk = &mut chunk[..length];
                    if let Some(at) = chunk.windows(5).position(|word| word == b"BEGIN") {
                        chunk[at..at + 5].copy_from_slice(b"NEVER");
                    }
                    to_server.write_all(chunk).await.unwrap();
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_begin_that_is_refused_leaves_no_row_behind() {
    let base = base().await;
    let port = without_begins(&base).await;
    let idempotency = flushed();
    let error = try_run(&idempotency, &inbox(Pay::default(), database(&base.url_by(port)))).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    done(&run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await);
}
