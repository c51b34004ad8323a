//! Promises of docs/backfill.md, docs/inbox.md and docs/upgrading.md that do not hold.

use std::num::NonZeroU32;
use std::process::Command;
use std::time::Duration;

use idempotent_sqs::idempotency::Fingerprint;
use idempotent_sqs::{MemoryStore, Message, Outcome, RedisStore};
use idempotent_sqs_postgres::backfill::{Backfill, BackfillEnd, BackfillProgress, BackfillSettings, BackfillStart};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::fixture::*;
use harness::postgres::Base;
use harness::redis::Redis;
use harness::with;

/// Inserts this many finished rows, which were done within a second, this long ago.
async fn seed(base: &Base, count: i64, ago: &str) {
    let rows = format!(
        "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts, result, done_at) \
         SELECT 'payments', 'pay_' || n, decode(repeat('00', 16), 'hex'), 1000 + n, 1, 'receipt', \
           now() - interval '{ago}' + n * interval '100 microseconds' FROM generate_series(1, $1::bigint) n"
    );
    base.client.execute(&rows, &[&count]).await.unwrap();
}

/// A backfill of 1,000 rows a second, with the default overlap of a minute.
fn slow(base: &Base, store: &RedisStore) -> Backfill<RedisStore> {
    let settings = with!(BackfillSettings::new("payments"), rows_per_second = NonZeroU32::new(1_000).unwrap());
    Backfill::new(store.clone(), database(&base.url()), settings)
}

/// Runs that have time for one step each, as invocations that end at their deadline. Returns those that were not done.
async fn scheduled_runs(backfill: &Backfill<RedisStore>, most: usize) -> Vec<BackfillProgress> {
    let mut runs = Vec::new();
    for _ in 0..most {
        let until = Some(Instant::now() + Duration::from_millis(900));
        let (progress, end) = backfill.run(BackfillStart::Watermark, until, |_| ()).await.unwrap();
        if end == BackfillEnd::Done {
            break;
        }
        assert_eq!(end, BackfillEnd::OutOfTime);
        runs.push(progress);
    }
    runs
}

/// docs/backfill.md: "Each run stops before its deadline, logs how many rows are left, and the next run continues."
///
/// Three runs copy what three runs have time for. But each starts a minute before the watermark, and a run that has not the
/// time for the rows of a minute comes to the same row each time.
#[tokio::test]
async fn runs_with_a_deadline_come_to_the_end_although_a_minute_has_more_rows_than_a_run_sends() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 2_500, "10 minutes").await;
    let unfinished = scheduled_runs(&slow(&base, &redis.store()), 12).await;
    let copied: Vec<_> = unfinished.iter().map(|run| (run.copied, run.already_completed, run.remaining)).collect();
    assert!(unfinished.len() < 12, "no run got beyond the first: {copied:?}");
}

/// The same without an overlap: the watermark stays behind the oldest transaction that has changed something, so runs with a
/// deadline come no further than one run comes from there, as long as that transaction is open.
#[tokio::test]
async fn runs_with_a_deadline_come_to_the_end_beside_an_open_transaction_of_another_program() {
    let (base, redis) = (base().await, Redis::start().await);
    let other = harness::postgres::connect(base.port, &base.name).await;
    other.batch_execute("BEGIN; CREATE TABLE nightly_report (a int)").await.unwrap();
    tokio::time::sleep(2 * SECOND).await;
    seed(&base, 2_500, "0 s").await;
    let settings = with!(
        BackfillSettings::new("payments"),
        rows_per_second = NonZeroU32::new(1_000).unwrap(),
        overlap = Duration::ZERO
    );
    let backfill = Backfill::new(redis.store(), database(&base.url()), settings);
    let unfinished = scheduled_runs(&backfill, 12).await;
    let copied: Vec<_> = unfinished.iter().map(|run| (run.copied, run.already_completed, run.remaining)).collect();
    assert!(unfinished.len() < 12, "no run got beyond the first: {copied:?}");
}

/// Passes: three runs are enough for the same rows without an overlap and without an open transaction.
#[tokio::test]
async fn control_without_either_three_runs_are_enough() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 2_500, "10 minutes").await;
    let settings = with!(
        BackfillSettings::new("payments"),
        rows_per_second = NonZeroU32::new(1_000).unwrap(),
        overlap = Duration::ZERO
    );
    let unfinished = scheduled_runs(&Backfill::new(redis.store(), database(&base.url()), settings), 12).await;
    assert_eq!(unfinished.len(), 2);
}

/// Runs the binary with this much memory, as of a function. Returns whether it succeeded, and what it printed.
async fn binary_with_memory(base: &Base, redis: &Redis, mib: u64, result_max_bytes: u64) -> (bool, String) {
    let mut command = Command::new("prlimit");
    command.args([&format!("--data={}", mib << 20), env!("CARGO_BIN_EXE_backfill")]).env_clear().envs([
        ("PATH", std::env::var("PATH").unwrap()),
        ("REDIS_URL", redis.url()),
        ("DATABASE_URL", base.url()),
        ("IDEMPOTENCY_NAMESPACE", "payments".to_owned()),
        ("IDEMPOTENCY_RESULT_MAX_BYTES", result_max_bytes.to_string()),
    ]);
    let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&printed).chars().take(400).collect())
}

/// docs/backfill.md: "Settings are those of the function that has the inbox." IDEMPOTENCY_RESULT_MAX_BYTES may be up to 1 MiB,
/// but a step has 1,000 rows whatever their size, and the template gives the backfill 256 MB. Killed for lack of memory in its
/// first step, each run starts with the same step.
#[tokio::test]
async fn a_backfill_has_memory_enough_for_results_of_a_size_that_the_settings_allow() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_000, "10 minutes").await;
    // The largest is 1,048,576.
    let bytes = std::env::var("ATTACK_RESULT_BYTES").map_or(262_144, |bytes| bytes.parse().unwrap());
    let (is_done, printed) = binary_with_memory(&base, &redis, 256, bytes).await;
    assert!(is_done, "the control, with small results: {printed}");
    let large = format!("UPDATE idempotency_inbox SET result = convert_to(repeat('x', {bytes}), 'UTF8')");
    base.client.batch_execute(&large).await.unwrap();
    let () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.unwrap();
    let (is_done, printed) = binary_with_memory(&base, &redis, 256, bytes).await;
    assert!(is_done, "{printed}");
}

/// docs/upgrading.md: "set IDEMPOTENCY_FINGERPRINT=none, deploy, and remove the setting when the retention is over. Until then
/// the same key with another payload is not detected." README.md: "Another payload under the same key is never treated as a
/// duplicate, as long as payloads are compared".
#[tokio::test]
async fn a_row_that_was_written_without_a_fingerprint_makes_another_payload_no_duplicate_once_payloads_are_compared() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    // While the setting is `none`.
    let not_compared = delivery("pay_1").fingerprint(Fingerprint::NONE);
    done(&flushed().run(&not_compared, &inbox, &Message::default()).await.unwrap());
    // Later, without the setting.
    let report = on(MemoryStore::default()).run(&delivery("pay_1"), &inbox, &Message::default()).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch), "acknowledged without being run: {report:?}");
}

/// docs/inbox.md: "`Inbox::check` checks all of this beforehand", and "COMMIT: both, or neither". With row-level security
/// without a policy for UPDATE, the check succeeds, and each effect commits with an unfinished row; the reason names a COMMIT
/// of the work, which there was not.
#[tokio::test]
async fn an_effect_whose_row_may_not_be_updated_is_not_committed_or_the_check_fails() {
    let base = base().await;
    let role = format!("limited_{}", base.name);
    base.client
        .batch_execute(&format!(
            "CREATE ROLE {role} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_inbox, effects TO {role}; \
             ALTER TABLE idempotency_inbox ENABLE ROW LEVEL SECURITY; \
             CREATE POLICY reads ON idempotency_inbox FOR SELECT USING (true); \
             CREATE POLICY inserts ON idempotency_inbox FOR INSERT WITH CHECK (true)"
        ))
        .await
        .unwrap();
    let inbox = inbox(Pay::default(), database(&base.url().replace("app@", &format!("{role}@"))));
    let check = inbox.check().await;
    let report = run(&flushed(), &inbox).await;
    let effects = base.count(EFFECTS).await;
    assert!(check.is_err() || effects == 0, "check: {check:?}, effects: {effects}, report: {report:?}");
}
