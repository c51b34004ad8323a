//! What is ready together travels together: calls made in one turn of the runtime share runs of
//! their script, and so round trips.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::calls::{Call, Terms};
use super::link::Link;
use crate::store::StoreError;

type Answer = Result<Vec<u8>, StoreError>;

#[derive(Clone, Debug)]
pub(super) struct Coalescer {
    link: Arc<Link>,
    waiting: Arc<Mutex<Vec<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    call: Call,
    answer: oneshot::Sender<Answer>,
}

impl Coalescer {
    pub(super) fn new(link: Link) -> Self {
        Self { link: Arc::new(link), waiting: Arc::default() }
    }

    /// The answer to this call, which travels with whatever else is ready.
    ///
    /// ## Cancel safety
    /// A call whose future was dropped is still sent, unless it had not been polled yet.
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
        answered.await.unwrap_or_else(|gone| Err(StoreError::unavailable(gone)))
    }

    async fn flush(self) {
        let mut waiting = mem::take(&mut *self.lock());
        let mut runs = Vec::new();
        while let Some(first) = waiting.first() {
            let terms = first.call.terms;
            let (mut alike, others): (Vec<_>, _) = waiting.into_iter().partition(|w| w.call.terms == terms);
            waiting = others;
            while !alike.is_empty() {
                let rest = alike.split_off(alike.len().min(self.link.records_a_run()));
                runs.push(self.run(terms, mem::replace(&mut alike, rest)));
            }
        }
        join_all(runs).await;
    }

    /// One run of a script, for calls that agree on its terms.
    async fn run(&self, terms: Terms, waiting: Vec<Waiting>) {
        let (calls, answers): (Vec<_>, Vec<_>) = waiting.into_iter().map(|w| (w.call, w.answer)).unzip();
        let answered = match self.link.run(&terms, &calls).await {
            Ok(answered) => answered.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); calls.len()],
        };
        for (waiting, answer) in answers.into_iter().zip(answered) {
            // Whoever has stopped waiting needs no answer.
            let _ = waiting.send(answer);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
