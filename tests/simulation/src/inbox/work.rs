//! The work of all callers. It follows the plan of its call, and records what it does and sees.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use history::inbox::{Failure, PLANNED, SECRET};
use idempotent_sqs::idempotency::Fence;
use idempotent_sqs::{Claim, WorkError};
use idempotent_sqs_postgres::{DatabaseError, Transaction, TransactionalWork};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::calls::{Failed, Recording, RunSeen};
use super::plan::{AtCommit, Case, LEAVES, OnFailure, Plan};
use super::world::World;
use crate::lock;
use crate::network::{self, Trigger};

/// The input of the work.
pub struct Input {
    /// The number of the call.
    pub call: usize,
    pub plan: Plan,
    /// The hosts of the caller and of its way to the server.
    pub hosts: Hosts,
    pub key: String,
    pub payload: u64,
    /// Tells the caller to drop the call.
    pub dropped: Arc<Notify>,
}

/// A way to the server: the host of a caller, and the name that the server has for it.
#[derive(Clone, Debug)]
pub struct Hosts {
    pub caller: String,
    pub server: String,
}

pub struct Worker(pub Arc<World>);

impl TransactionalWork<Input> for Worker {
    async fn run(&self, transaction: &Transaction, claim: &Claim, input: &Input) -> Result<Vec<u8>, WorkError> {
        let result = format!("{} of claim {}", input.key, claim.fence().0).into_bytes();
        self.note(input, |runs| runs.push(RunSeen::begun(claim)));
        let outcome = self.follow(transaction, claim, input).await.map(|()| result);
        self.note_run(input, |run| {
            run.ended = Some(Instant::now());
            run.returned = Some(match &outcome {
                Ok(result) => Ok(result.clone()),
                Err(failure) => Err(Failed::by(failure)),
            });
        });
        outcome.map_err(Into::into)
    }

    async fn record_failure(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        input: &Input,
        _: &WorkError,
    ) -> Result<(), WorkError> {
        let recording = Recording { begun: Instant::now(), session: None, returned: None };
        self.note_run(input, |run| run.recordings.push(recording));
        let outcome = self.record(transaction, claim.fence(), input).await;
        self.note_run(input, |run| {
            let returned = outcome.as_ref().map_err(Failed::by).copied();
            run.recordings.last_mut().expect("it was recorded").returned = Some(returned);
        });
        outcome.map_err(Into::into)
    }
}

/// The replies to the last statement and to the question whether the transaction exists come before it.
const REPLY_TO_COMMIT: Trigger = Trigger::Cut(2);

impl Worker {
    fn note(&self, input: &Input, change: impl FnOnce(&mut Vec<RunSeen>)) {
        change(&mut lock(&self.0.calls)[input.call].runs);
    }

    fn note_run(&self, input: &Input, change: impl FnOnce(&mut RunSeen)) {
        self.note(input, |runs| change(runs.last_mut().expect("it began")));
    }

    async fn follow(&self, transaction: &Transaction, claim: &Claim, input: &Input) -> Result<(), Failure> {
        let pid = backend(transaction).await?;
        let session = self.0.server.session(pid);
        self.note_run(input, |run| run.session = session);
        self.insert(transaction, "effects", claim.fence(), input).await?;
        self.note_run(input, |run| run.effect = Some(Instant::now()));
        self.act(transaction, input).await?;
        self.prepare_commit(input);
        Ok(())
    }

    /// Inserts a row of its own.
    async fn insert(
        &self,
        transaction: &Transaction,
        table: &str,
        fence: Fence,
        input: &Input,
    ) -> Result<(), DatabaseError> {
        let insert = format!("INSERT INTO {table} (consumer, key, fence, payload) VALUES ($1, $2, $3, $4)");
        let consumer = lock(&self.0.calls)[input.call].consumer;
        let (fence, payload) = (i64::try_from(fence.0).expect("it is small"), input.payload.to_string());
        transaction.execute(&insert, &[&consumer, &input.key, &fence, &payload]).await.map(drop)
    }

    async fn act(&self, transaction: &Transaction, input: &Input) -> Result<(), Failure> {
        let (server, Hosts { caller, server: host }) = (&self.0.server, &input.hosts);
        match input.plan.case {
            Case::Succeed => {}
            Case::Fail(class) => {
                if matches!(input.plan.on_failure, OnFailure::SessionEnds | OnFailure::Late) {
                    // Others wait for the row meanwhile.
                    sleep(Duration::from_millis(20)).await;
                }
                match input.plan.on_failure {
                    OnFailure::SessionEnds => server.fail_next(host, "BEGIN", "57P01"),
                    // Only its ROLLBACK arrives.
                    OnFailure::Late => {
                        self.0.unreachable(input, Duration::from_millis(4), Duration::from_millis(80));
                    }
                    OnFailure::Silent => self.0.unreachable(input, Duration::ZERO, Duration::MAX),
                    _ => {}
                }
                return Err(Failure::Planned(class));
            }
            Case::Panic => resume_unwind(Box::new(PLANNED)),
            Case::Hang { in_statement: true } => sleep_in_statement(transaction).await?,
            Case::Hang { in_statement: false } => pending().await,
            Case::Take(time) => sleep(time).await,
            Case::StatementFails(code) => {
                server.fail_next(host, "SELECT 'planned'", code);
                transaction.execute("SELECT 'planned'", &[]).await?;
            }
            Case::WrongParameter => drop(transaction.query("SELECT $1::bigint", &[&SECRET]).await?),
            Case::Ignored => drop(transaction.execute("SELECT 1 / 0", &[]).await),
            Case::Savepoint => {
                transaction.execute("SAVEPOINT mine", &[]).await?;
                let _failed = transaction.execute("SELECT 1 / 0", &[]).await;
                transaction.execute("ROLLBACK TO SAVEPOINT mine", &[]).await?;
            }
            Case::End { commits, then, fails } => {
                self.note_run(input, |run| run.has_ended = true);
                for statement in [if commits { "COMMIT" } else { "ROLLBACK" }].into_iter().chain(then) {
                    transaction.execute(statement, &[]).await?;
                }
                if let Some(class) = fails {
                    return Err(Failure::Planned(class));
                }
            }
            Case::Deallocate => drop(transaction.execute("DEALLOCATE ALL", &[]).await?),
            Case::MakeReadOnly => drop(transaction.execute("SET TRANSACTION READ ONLY", &[]).await?),
            Case::Leave(statement) => drop(transaction.execute(LEAVES[statement], &[]).await?),
            Case::KeepRow => drop(transaction.execute("SET LOCAL app.keeps_row = 'yes'", &[]).await?),
            Case::Cut => {
                network::cut(caller, host);
                transaction.execute("SELECT 1", &[]).await?;
            }
            Case::Dropped { in_statement } => {
                let dropped = Arc::clone(&input.dropped);
                tokio::spawn(async move {
                    sleep(Duration::from_millis(20)).await;
                    dropped.notify_one();
                });
                if in_statement { sleep_in_statement(transaction).await? } else { pending().await }
            }
        }
        Ok(())
    }

    /// Prepares what happens to the next message on the way to the server, or on the way back.
    fn prepare_commit(&self, input: &Input) {
        let (server, Hosts { caller, server: host }) = (&self.0.server, &input.hosts);
        match input.plan.at_commit {
            AtCommit::Nothing => {}
            AtCommit::Fails(code) => server.fail_next(host, "COMMIT", code),
            // An operator cancels the question whether the transaction still exists.
            AtCommit::Unchecked => {
                server.fail_next(host, "SELECT current_setting('idempotent_sqs.begun', true)", "57014");
            }
            AtCommit::Crash { before } => server.crash_at_commit(host, before),
            AtCommit::Lost { request, unreachable } => {
                if request {
                    network::arm(caller, Trigger::Cut(0));
                } else {
                    network::arm(host, REPLY_TO_COMMIT);
                }
                if !unreachable.is_zero() {
                    self.0.unreachable(input, Duration::from_millis(if request { 0 } else { 4 }), unreachable);
                }
            }
            AtCommit::Silent => self.0.unreachable(input, Duration::ZERO, Duration::MAX),
        }
    }

    async fn record(&self, transaction: &Transaction, fence: Fence, input: &Input) -> Result<(), Failure> {
        let pid = backend(transaction).await?;
        let session = self.0.server.session(pid);
        self.note_run(input, |run| run.recordings.last_mut().expect("it began").session = session);
        self.insert(transaction, "failures", fence, input).await?;
        match input.plan.on_failure {
            OnFailure::Recorded | OnFailure::SessionEnds | OnFailure::Late | OnFailure::Silent => {}
            OnFailure::Fails(class) => return Err(Failure::Planned(class)),
            OnFailure::LostReply => network::arm(&input.hosts.server, REPLY_TO_COMMIT),
        }
        Ok(())
    }
}

async fn backend(transaction: &Transaction) -> Result<i32, DatabaseError> {
    let row = transaction.query_first("SELECT pg_backend_pid() AS pid", &[]).await?;
    Ok(row.expect("the query has a row").get("pid"))
}

/// Longer than any call.
async fn sleep_in_statement(transaction: &Transaction) -> Result<(), DatabaseError> {
    transaction.execute("SELECT pg_sleep(60)", &[]).await.map(drop)
}
