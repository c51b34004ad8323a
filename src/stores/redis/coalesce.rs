//! What is ready together travels together: calls made in one turn of the runtime share runs of
//! their script, and so round trips.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::unconstrained;

use super::calls::{Answer, Call, Terms, Waiting};
use super::link::Link;
use crate::store::StoreError;

/// Runs that are on the way at once. The time for a reply counts from here on, so the last of them must
/// not wait for it behind too many others: on a cluster, where each record is a run of its own, so many
/// take 20 ms (70 µs each, three nodes on loopback).
const RUNS_AT_ONCE: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Coalescer {
    link: Arc<Link>,
    waiting: Arc<Mutex<Vec<Waiting>>>,
    at_once: Arc<Semaphore>,
}

impl Coalescer {
    pub(super) fn new(link: Link) -> Self {
        Self { link: Arc::new(link), waiting: Arc::default(), at_once: Arc::new(Semaphore::new(RUNS_AT_ONCE)) }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// The answer to this call, which travels with whatever else is ready.
    ///
    /// ## Cancel safety
    /// A call whose future was dropped is not sent any more, unless it was on its way: what an
    /// invocation asked for must not happen once that is over. Calls of others go on.
    pub(super) async fn send(&self, call: Call) -> Answer {
        let (answer, answered) = oneshot::channel();
        let first = {
            let mut waiting = self.lock();
            waiting.push(Waiting { call, answer });
            waiting.len() == 1
        };
        if first {
            // The task starts once the caller's has let go of the runtime, so all calls that are
            // ready by then are in. It belongs to nobody, so that no caller's end strands the
            // others; the link's own bounds end it.
            tokio::spawn(self.clone().flush());
        }
        // Out of the runtime's budget: a batch has more answers in one turn than that allows, and would
        // ask again for each that is there already.
        unconstrained(answered).await.unwrap_or_else(|gone| Err(StoreError::unavailable(gone)))
    }

    async fn flush(self) {
        let waiting = mem::take(&mut *self.lock());
        let mut runs: Vec<Run> = Vec::new();
        for one in waiting {
            let terms = one.call.terms;
            let joins = |run: &&mut Run| run.waiting.len() < self.link.records_a_run() && run.terms.go_with(&terms);
            match runs.iter_mut().rfind(joins) {
                Some(run) => {
                    run.terms = run.terms.of_both(&terms);
                    run.waiting.push(one);
                }
                None => runs.push(Run { terms, waiting: vec![one] }),
            }
        }
        // A work waits for its claim. For what is settled wait only the next of a group, and the response.
        runs.sort_by_key(|run| !run.terms.acquires());
        join_all(runs.into_iter().map(|run| run.go(&self))).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One run of a script, for calls that agree on its terms.
struct Run {
    terms: Terms,
    waiting: Vec<Waiting>,
}

impl Run {
    async fn go(mut self, coalescer: &Coalescer) {
        // Nobody closes it, and if it were closed there would be no bound to wait for.
        let _turn = coalescer.at_once.acquire().await.ok();
        // Whoever has stopped waiting meanwhile needs no answer.
        match coalescer.link.run(&self.terms, &mut self.waiting).await {
            Ok(answers) => {
                self.waiting.into_iter().zip(answers).for_each(|(one, answer)| drop(one.answer.send(Ok(answer))));
            }
            Err(error) => self.waiting.into_iter().for_each(|one| drop(one.answer.send(Err(error.clone())))),
        }
    }
}
