//! The work of all owners, which follows the plan of its delivery and records what it does and sees.

use std::sync::Arc;
use std::time::Duration;

use harness::front::Front;
use harness::torture::tally::lock;
use history::inbox::{Class, Failure, SECRET};
use history::monotonic_us;
use idempotent_sqs::{Claim, WorkError};
use idempotent_sqs_postgres::{DatabaseError, Transaction, TransactionalWork};
use tokio::time::{Instant, sleep, timeout};

use super::control::Control;
use super::plan::{COMMITS, Case, Ends, LEAVES, OnFailure, Plan, ROLLBACKS};
use super::session::Session;
use super::tally::{Failed, Message, Recording, Run};
use super::world::World;

/// The input of the work.
#[derive(Clone)]
pub(crate) struct Input {
    /// The number of the delivery.
    pub(crate) delivery: usize,
    pub(crate) message: Message,
    pub(crate) plan: Plan,
    /// The way to the database.
    pub(crate) front: Arc<Front>,
    pub(crate) control: Arc<Control>,
}

/// The work of all owners.
#[derive(Clone)]
pub(crate) struct Worker(pub(crate) Arc<World>);

/// A failure whose last statement took this long.
fn failed(failure: &Failure, took_us: u64) -> Failed {
    let (class, statement) = failure.class();
    Failed { class, statement, took_us }
}

impl TransactionalWork<Input> for Worker {
    async fn run(&self, transaction: &Transaction, claim: &Claim, input: &Input) -> Result<Vec<u8>, WorkError> {
        let running = Running::begin(&self.0, claim, input);
        let outcome = self.follow(&running, transaction, input).await;
        let took_us = monotonic_us() - running.statement_us();
        running.note(|run| {
            run.returned = Some(match &outcome {
                Ok(result) => Ok(result.clone()),
                Err(failure) => Err(failed(failure, took_us)),
            });
        });
        outcome.map_err(Into::into)
    }

    async fn record_failure(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        input: &Input,
        why: &WorkError,
    ) -> Result<(), WorkError> {
        let fence = claim.fence().0;
        let (number, at) = {
            let mut runs = lock(&self.0.tally.runs);
            let is_run = |run: &Run| (run.delivery, run.fence) == (input.delivery, fence);
            let Some(number) = runs.iter().position(is_run) else {
                self.0.tally.fault(format!("a failure is recorded without a run: {:?}", input.message));
                return Ok(());
            };
            let (begun_us, why) = (monotonic_us(), why.to_string());
            let recordings = &mut runs[number].recordings;
            recordings.push(Recording { begun_us, why, session: None, returned: None });
            (number, recordings.len() - 1)
        };
        let note = |change: &dyn Fn(&mut Recording)| change(&mut lock(&self.0.tally.runs)[number].recordings[at]);
        let outcome = self.record(transaction, input, number, why, |session| {
            note(&|recording| recording.session = Some(session.clone()));
        });
        let outcome = outcome.await;
        note(&|recording| recording.returned = Some(outcome.as_ref().map_err(|failure| failed(failure, 0)).copied()));
        outcome.map_err(Into::into)
    }
}

impl Worker {
    /// Follows the plan.
    async fn follow(
        &self,
        running: &Running<'_>,
        transaction: &Transaction,
        input: &Input,
    ) -> Result<Vec<u8>, Failure> {
        let (world, Plan { case, leaves, loses_record, on_failure, .. }) = (&self.0, input.plan);
        let session = Session::of(transaction).await?;
        running.note(|run| run.session = Some(session.clone()));
        if let Some(leaves) = leaves {
            transaction.execute(LEAVES[leaves], &[]).await?;
        }
        running.take_effect(transaction, input).await?;
        if loses_record {
            let key = lock(&world.tally.runs)[running.at].key.clone();
            let (losing, namespace) = (Arc::clone(world), input.message.namespace);
            // A loss is noted also if the run is cancelled at its deadline meanwhile.
            let lost = tokio::spawn(async move { losing.losses.delete(namespace, &key).await });
            lost.await.expect("the server replies");
            match input.plan.rival {
                Some(rival) => world.send_rival(&input.message, rival),
                None => world.hint(&input.message),
            }
            let limit = Duration::from_millis(if input.plan.rival.is_some() { 500 } else { 150 });
            world.operator.until_awaited(session.transaction, limit).await;
        }
        let result = vec![b'r'; if let Case::Succeed(bytes) = case { bytes } else { 20 }];
        match case {
            Case::Succeed(_) | Case::AtCommit(_) => {}
            Case::Fail(class) => {
                world.fail(class, on_failure, input);
                return Err(Failure::Planned(class));
            }
            Case::Panic => std::panic::resume_unwind(Box::new(SECRET)),
            Case::Hang => std::future::pending().await,
            Case::Long => sleep(Duration::from_millis(1200)).await,
            Case::End(ends, statement, class) => {
                let statement = if ends == Ends::Commit { COMMITS[statement] } else { ROLLBACKS[statement] };
                // It may take effect without a reply.
                running.note(|run| run.has_ended = true);
                transaction.execute(statement, &[]).await?;
                // Another owner may do the work now.
                sleep(Duration::from_millis(if input.plan.rival.is_some() { 120 } else { 40 })).await;
                if let Some(class) = class {
                    return Err(Failure::Planned(class));
                }
            }
            Case::Cut
            | Case::CutIgnored { .. }
            | Case::LostReply { .. }
            | Case::LostRequest
            | Case::CutAtCommit
            | Case::SilentAtCommit
            | Case::Silent => self.break_connection(transaction, input, &session).await?,
            Case::Frozen { .. } | Case::Paused | Case::Dropped { .. } | Case::Cancelled | Case::Terminated => {
                self.stop(running, transaction, input, &session).await?;
            }
            Case::Raise(_)
            | Case::WrongData
            | Case::WrongParameter
            | Case::WrongCharacter
            | Case::Ignored
            | Case::Savepoint
            | Case::LockTwo
            | Case::LockHeld
            | Case::Deallocate
            | Case::MakeReadOnly
            | Case::KeepRow
            | Case::Outdated => {
                running.begin_statement();
                if let Err(failure) = statements(transaction, case, input.delivery).await {
                    world.fail(failure.class().0, on_failure, input);
                    return Err(failure);
                }
            }
        }
        Ok(result)
    }

    /// The connection breaks now, or during the commit.
    async fn break_connection(
        &self,
        transaction: &Transaction,
        input: &Input,
        session: &Session,
    ) -> Result<(), Failure> {
        let (world, front, transaction_id, pid) = (&self.0, &input.front, session.transaction, session.pid);
        if let Case::CutIgnored { is_unreachable: true } | Case::LostReply { is_unreachable: true } = input.plan.case {
            front.forward_to(world.closed_port);
        }
        match input.plan.case {
            Case::Cut | Case::CutIgnored { .. } => {
                front.cut();
                let error = loop {
                    if let Err(error) = transaction.execute("SELECT", &[]).await {
                        break error;
                    }
                };
                if input.plan.case == Case::Cut {
                    return Err(error.into());
                }
            }
            Case::LostReply { .. } => {
                front.drop_replies(true);
                self.0.watch(Self::cut_after_commit(Arc::clone(world), input, transaction_id));
            }
            Case::LostRequest => {
                front.drop_requests(true);
                let (front, control) = (Arc::clone(front), Arc::clone(&input.control));
                self.0.watch(async move {
                    // If the connection is already closed, the request is not sent.
                    let _dropped = timeout(Duration::from_secs(2), front.dropped()).await;
                    control.unless_over(|| {
                        front.drop_requests(false);
                        front.cut();
                    });
                });
            }
            Case::CutAtCommit => {
                let (world, front, control) = (Arc::clone(world), Arc::clone(front), Arc::clone(&input.control));
                self.0.watch(async move {
                    world.operator.until_asleep(pid).await;
                    control.unless_over(|| front.cut());
                });
            }
            Case::SilentAtCommit => front.drop_replies(true),
            _ => {
                // The server is not told that the client has gone.
                front.freeze();
                let (world, ends_us) = (Arc::clone(world), self.ends_us(input));
                self.0.watch(async move { world.expect_over("a silent process", transaction_id, ends_us).await });
                transaction.execute("SELECT", &[]).await?;
            }
        }
        Ok(())
    }

    /// Closes the connection once this transaction is committed, whose reply is lost.
    fn cut_after_commit(world: Arc<World>, input: &Input, transaction: i64) -> impl Future<Output = ()> + use<> {
        let (front, control) = (Arc::clone(&input.front), Arc::clone(&input.control));
        async move {
            world.operator.until_committed(transaction).await;
            control.unless_over(|| {
                front.drop_replies(false);
                front.cut();
            });
        }
    }

    /// The process, the statement or the session is stopped.
    async fn stop(
        &self,
        running: &Running<'_>,
        transaction: &Transaction,
        input: &Input,
        session: &Session,
    ) -> Result<(), Failure> {
        let (world, control) = (Arc::clone(&self.0), Arc::clone(&input.control));
        let (pid, id, ends_us) = (session.pid, session.transaction, self.ends_us(input));
        let case = input.plan.case;
        let sleeps = matches!(
            case,
            Case::Frozen { in_statement: true }
                | Case::Dropped { in_statement: true }
                | Case::Cancelled
                | Case::Terminated
        );
        let timeout_us = u64::try_from(lock(&world.tally.sent)[input.delivery].kind.timeout.as_micros()).unwrap();
        self.0.watch(async move {
            if sleeps {
                world.operator.until_asleep(pid).await;
            }
            match case {
                Case::Cancelled => drop(world.operator.rows(&format!("SELECT pg_cancel_backend({pid})")).await),
                Case::Terminated => drop(world.operator.rows(&format!("SELECT pg_terminate_backend({pid})")).await),
                Case::Paused => {
                    control.freeze();
                    sleep(Duration::from_millis(150)).await;
                    control.resume();
                }
                Case::Dropped { .. } => {
                    control.drop_delivery();
                    // The server looks for the client as often as it waits for a lock at most.
                    world.expect_over("a delivery that was dropped", id, monotonic_us() + timeout_us).await;
                }
                _ => {
                    control.freeze();
                    world.expect_over("a frozen process", id, ends_us).await;
                    control.resume();
                }
            }
        });
        running.begin_statement();
        if sleeps {
            transaction.execute("SELECT pg_sleep(30)", &[]).await?;
        } else if case == Case::Paused {
            sleep(Duration::from_millis(100)).await;
        } else {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    /// When the work of this delivery is to end.
    fn ends_us(&self, input: &Input) -> u64 {
        lock(&self.0.tally.sent)[input.delivery].work_us
    }

    /// Records a failure as the plan says.
    async fn record(
        &self,
        transaction: &Transaction,
        input: &Input,
        number: usize,
        why: &WorkError,
        sees: impl Fn(Session) + Send,
    ) -> Result<(), Failure> {
        let front = &input.front;
        if input.plan.on_failure == OnFailure::Late {
            front.delay_replies(Duration::ZERO);
        }
        let session = Session::of(transaction).await?;
        let id = session.transaction;
        sees(session);
        let failure = "INSERT INTO failures (run, why) VALUES ($1, $2)";
        transaction.execute(failure, &[&i64::try_from(number).unwrap(), &why.to_string()]).await?;
        match input.plan.on_failure {
            OnFailure::Recorded | OnFailure::Late => {}
            OnFailure::Fails(class) => return Err(Failure::Planned(class)),
            OnFailure::LostReply => {
                front.drop_replies(true);
                self.0.watch(Self::cut_after_commit(Arc::clone(&self.0), input, id));
            }
        }
        Ok(())
    }
}

/// Executes the statements of this case.
async fn statements(transaction: &Transaction, case: Case, number: usize) -> Result<(), Failure> {
    match case {
        Case::Raise(code) => {
            let message =
                if Class::of(code) == Class::Permanent || code.starts_with("P0") { SECRET } else { "planned" };
            let raise = format!("DO $$ BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = '{code}'; END $$");
            transaction.execute(&raise, &[]).await?;
        }
        Case::WrongData => drop(transaction.query("SELECT $1::text::integer", &[&SECRET]).await?),
        Case::WrongParameter => drop(transaction.query("SELECT $1::bigint", &[&SECRET]).await?),
        Case::WrongCharacter => drop(transaction.query("SELECT $1::text", &[&"日"]).await?),
        Case::Ignored => drop(transaction.execute("INSERT INTO locks VALUES (NULL)", &[]).await),
        Case::Savepoint => {
            transaction.execute("SAVEPOINT mine", &[]).await?;
            let _ = transaction.execute("INSERT INTO locks VALUES (NULL)", &[]).await;
            transaction.execute("ROLLBACK TO SAVEPOINT mine", &[]).await?;
        }
        Case::LockTwo => {
            let rows = if number.is_multiple_of(2) { [1, 2] } else { [2, 1] };
            for row in rows {
                transaction.execute("UPDATE locks SET changes = changes + 1 WHERE id = $1", &[&row]).await?;
                sleep(Duration::from_millis(60)).await;
            }
        }
        Case::LockHeld => drop(transaction.execute("UPDATE locks SET changes = 0 WHERE id = 0", &[]).await?),
        Case::MakeReadOnly => drop(transaction.execute("SET TRANSACTION READ ONLY", &[]).await?),
        Case::KeepRow => drop(transaction.query("SELECT set_config('app.keeps_row', 'yes', true)", &[]).await?),
        Case::Deallocate => drop(transaction.execute("DEALLOCATE ALL", &[]).await?),
        _ => drop(transaction.execute("INSERT INTO painted VALUES ($1)", &[&"red"]).await?),
    }
    Ok(())
}

/// A run that records how it ends.
struct Running<'a> {
    world: &'a World,
    at: usize,
    statement_us: std::sync::atomic::AtomicU64,
}

impl<'a> Running<'a> {
    fn begin(world: &'a World, claim: &Claim, input: &Input) -> Self {
        let begun_us = monotonic_us();
        let left = claim.ends().saturating_duration_since(Instant::now());
        let run = Run {
            delivery: input.delivery,
            key: claim.key().stored().into_owned(),
            fence: claim.fence().0,
            attempt: claim.attempt(),
            is_recovery: claim.is_recovery(),
            begun_us,
            ends_us: begun_us + u64::try_from(left.as_micros()).unwrap(),
            session: None,
            effect_us: None,
            has_ended: false,
            returned: None,
            ended_us: u64::MAX,
            recordings: Vec::new(),
        };
        let mut runs = lock(&world.tally.runs);
        runs.push(run);
        Self { world, at: runs.len() - 1, statement_us: begun_us.into() }
    }

    fn note(&self, change: impl FnOnce(&mut Run)) {
        change(&mut lock(&self.world.tally.runs)[self.at]);
    }

    /// The statement begins whose time is measured.
    fn begin_statement(&self) {
        self.statement_us.store(monotonic_us(), std::sync::atomic::Ordering::Relaxed);
    }

    fn statement_us(&self) -> u64 {
        self.statement_us.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Inserts a row of its own.
    async fn take_effect(&self, transaction: &Transaction, input: &Input) -> Result<(), DatabaseError> {
        let at_commit = match input.plan.case {
            Case::AtCommit(code) => Some(code),
            Case::CutAtCommit => Some("sleep"),
            _ => None,
        };
        let effect = "INSERT INTO effects (run, at_commit) VALUES ($1, $2)";
        transaction.execute(effect, &[&i64::try_from(self.at).unwrap(), &at_commit]).await?;
        self.note(|run| run.effect_us = Some(monotonic_us()));
        Ok(())
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.note(|run| run.ended_us = monotonic_us());
    }
}
