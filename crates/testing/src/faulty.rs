//! A store with the faults of a network and of a server.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::rng::{Draw, Rng};
use idempotent_sqs::idempotency::{Acquire, Attempt, Claim, Failure, Key, Settled, Store, StoreError, StoredResult};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not executed, and fails at once.
    Refused,
    /// It is executed, and fails.
    ReplyLost,
    /// It is executed twice, as by a client that sends it again. The second answer counts.
    Twice,
    /// It is executed at once, and its answer takes so long.
    Slow(Duration),
    /// It is executed after so long, also where the caller has given up by then.
    Late(Duration),
    /// It is not executed, and waits for an answer for ever.
    OutOfReach,
}

/// What a store is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreCall {
    /// To acquire.
    Acquire,
    /// To complete, to fail or to release.
    Settle,
}

/// A store whose calls meet faults when told: by switch, or by seed.
#[derive(Debug, Default)]
pub struct FaultyStore<S> {
    inner: Arc<S>,
    patience: Option<Duration>,
    chances: Option<(Rng, Vec<(Fault, f64)>)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    acquire: Switch,
    settle: Switch,
    /// How often each key was asked for, for the number of its next call.
    asked: HashMap<(StoreCall, Key), u64>,
    befell: Vec<(StoreCall, Fault)>,
}

#[derive(Debug, Default)]
struct Switch {
    calls: usize,
    next: VecDeque<Fault>,
    always: Option<Fault>,
}

impl<S> FaultyStore<S> {
    /// This store, without faults so far.
    pub fn new(store: S) -> Self {
        let (inner, state) = (Arc::new(store), Mutex::default());
        Self { inner, patience: None, chances: None, state }
    }

    /// As a client that waits so long for an answer, and fails then. Without it nobody but the
    /// caller gives up.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Each call meets each of these faults with its chance. It depends on the seed, the key and
    /// how often that was asked for, not on other keys.
    #[must_use]
    pub fn by_seed(self, seed: u64, chances: &[(Fault, f64)]) -> Self {
        Self { chances: Some((Rng::new(seed), chances.to_vec())), ..self }
    }

    /// From now on every such call meets this fault, or, with `None`, what the seed says.
    pub fn always(&self, verb: StoreCall, fault: Option<Fault>) {
        self.state().switch(verb).always = fault;
    }

    /// The next such call meets this fault; called again, the one after it does.
    pub fn next(&self, verb: StoreCall, fault: Fault) {
        self.state().switch(verb).next.push_back(fault);
    }

    /// How many such calls there were.
    pub fn calls(&self, verb: StoreCall) -> usize {
        self.state().switch(verb).calls
    }

    /// The faults that calls met, in order.
    pub fn befell(&self) -> Vec<(StoreCall, Fault)> {
        self.state().befell.clone()
    }

    /// The store without faults.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, verb: StoreCall, key: &Key) -> Option<Fault> {
        let mut state = self.state();
        let asked = state.asked.entry((verb, key.clone())).or_default();
        *asked += 1;
        let time = *asked;
        let switch = state.switch(verb);
        switch.calls += 1;
        let told = switch.next.pop_front().or(switch.always);
        let fault = told.or_else(|| self.by_chance(verb, key, time));
        state.befell.extend(fault.map(|fault| (verb, fault)));
        fault
    }

    fn by_chance(&self, verb: StoreCall, key: &Key, time: u64) -> Option<Fault> {
        let (rng, chances) = self.chances.as_ref()?;
        let mut share = rng.of(key.as_str()).share(Draw::Fault, verb as u64, time);
        let hit = chances.iter().find(|(_, chance)| {
            share -= chance;
            share < 0.0
        });
        hit.map(|(fault, _)| *fault)
    }
}

impl State {
    fn switch(&mut self, verb: StoreCall) -> &mut Switch {
        match verb {
            StoreCall::Acquire => &mut self.acquire,
            StoreCall::Settle => &mut self.settle,
        }
    }
}

impl<S: Store + 'static> FaultyStore<S> {
    async fn call<T, F>(&self, verb: StoreCall, key: &Key, call: impl Fn() -> F + Send) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let suffered = suffer(self.fault(verb, key), call);
        match self.patience {
            None => suffered.await,
            Some(patience) => {
                timeout(patience, suffered).await.unwrap_or_else(|late| Err(StoreError::unavailable(late)))
            }
        }
    }
}

async fn suffer<T, F>(fault: Option<Fault>, call: impl Fn() -> F + Send) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let as_told = || Err(StoreError::unavailable("as told"));
    match fault {
        None => call().await,
        Some(Fault::Refused) => as_told(),
        Some(Fault::ReplyLost) => call().await.and_then(|_| as_told()),
        Some(Fault::Twice) => {
            call().await?;
            call().await
        }
        Some(Fault::Slow(time)) => {
            let answer = call().await;
            sleep(time).await;
            answer
        }
        Some(Fault::Late(time)) => {
            let call = call();
            let late = tokio::spawn(async move {
                sleep(time).await;
                call.await
            });
            late.await.unwrap_or_else(|error| Err(StoreError::unavailable(error)))
        }
        Some(Fault::OutOfReach) => pending().await,
    }
}

impl<S: Store + 'static> Store for FaultyStore<S> {
    async fn acquire(&self, attempt: Attempt) -> Result<Acquire, StoreError> {
        let (inner, key) = (Arc::clone(&self.inner), attempt.key.clone());
        let acquire = || {
            let (inner, attempt) = (Arc::clone(&inner), attempt.clone());
            async move { inner.acquire(attempt).await }
        };
        self.call(StoreCall::Acquire, &key, acquire).await
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let complete = || {
            let (inner, claim, result) = (Arc::clone(&self.inner), same(claim), result.into_owned());
            async move { inner.complete(&claim, result.as_deref()).await }
        };
        self.call(StoreCall::Settle, claim.key(), complete).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        let fail = || {
            let (inner, claim) = (Arc::clone(&self.inner), same(claim));
            async move { inner.fail(&claim, failure).await }
        };
        self.call(StoreCall::Settle, claim.key(), fail).await
    }

    async fn release(&self, attempt: &Attempt, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        let release = || {
            let (inner, attempt, claim) = (Arc::clone(&self.inner), attempt.clone(), claim.map(same));
            async move { inner.release(&attempt, claim.as_ref()).await }
        };
        self.call(StoreCall::Settle, &attempt.key, release).await
    }
}

/// What a call that is on the wire holds of the claim, when its owner has long let go of it.
fn same(claim: &Claim) -> Claim {
    match Acquire::claimed(claim.asked().clone(), claim.fence(), claim.attempt(), claim.is_recovery()) {
        Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => claim,
        Acquire::Duplicate { .. } | Acquire::Conflict { .. } | Acquire::Mismatch | Acquire::Failed => {
            unreachable!("what is claimed is a claim")
        }
    }
}
