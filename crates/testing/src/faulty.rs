//! A store that injects faults.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Key, Settled, Store, StoreError, StoredResult,
};
use tokio::time::{self, sleep};

use super::rng::{Draw, Rng};

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The call is not executed and fails immediately.
    Refused,
    /// The call is executed, and fails because its reply is lost.
    ReplyLost,
    /// The call is executed twice, as by a client that retries. The caller gets the second reply.
    Twice,
    /// The call is executed immediately, and its reply is delayed by this time.
    Slow(Duration),
    /// The call is executed after this time, even if the caller was cancelled.
    Late(Duration),
    /// The call is not executed, and no reply ever comes.
    Unreachable,
}

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreCall {
    /// Acquire.
    Acquire,
    /// Complete, fail or release.
    Settle,
}

/// A [`Store`] that passes calls on to another store and injects [faults](Fault): those that a test sets, or random
/// ones from a seed.
#[derive(Debug, Default)]
pub struct FaultyStore<S> {
    inner: Arc<S>,
    timeout: Option<Duration>,
    rates: Option<(Rng, Vec<(Fault, f64)>)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    acquire: Switch,
    settle: Switch,
    /// Number of calls for each key.
    calls: HashMap<(StoreCall, Key), u64>,
    faults: Vec<(StoreCall, Fault)>,
}

/// The faults that a test set for one kind of call.
#[derive(Debug, Default)]
struct Switch {
    calls: usize,
    next: VecDeque<Fault>,
    always: Option<Fault>,
}

impl<S> FaultyStore<S> {
    /// Creates a store without faults.
    pub fn new(store: S) -> Self {
        let (inner, state) = (Arc::new(store), Mutex::default());
        Self { inner, timeout: None, rates: None, state }
    }

    /// Sets the time after which a call without a reply fails, as in a client. By default calls wait without limit.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets the probability of each fault, from 0 to 1. Which calls fail depends on the seed, the key and the number
    /// of earlier calls for that key, and not on other keys.
    #[must_use]
    pub fn random_faults(self, seed: u64, rates: &[(Fault, f64)]) -> Self {
        Self { rates: Some((Rng::new(seed), rates.to_vec())), ..self }
    }

    /// Sets the fault of every further call of this kind. `None` removes it; random faults then apply again.
    pub fn always(&self, call: StoreCall, fault: Option<Fault>) {
        self.state().switch(call).always = fault;
    }

    /// Sets the fault of the next call of this kind. Repeated, it sets the fault of the call after that.
    pub fn next(&self, call: StoreCall, fault: Fault) {
        self.state().switch(call).next.push_back(fault);
    }

    /// Number of calls of this kind.
    pub fn calls(&self, call: StoreCall) -> usize {
        self.state().switch(call).calls
    }

    /// The faults so far, in order.
    pub fn faults(&self) -> Vec<(StoreCall, Fault)> {
        self.state().faults.clone()
    }

    /// The store behind this one.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and chooses its fault.
    fn fault(&self, call: StoreCall, key: &Key) -> Option<Fault> {
        let mut state = self.state();
        let calls = state.calls.entry((call, key.clone())).or_default();
        *calls += 1;
        let number = *calls;
        let switch = state.switch(call);
        switch.calls += 1;
        let set = switch.next.pop_front().or(switch.always);
        let fault = set.or_else(|| self.random_fault(call, key, number));
        state.faults.extend(fault.map(|fault| (call, fault)));
        fault
    }

    fn random_fault(&self, call: StoreCall, key: &Key, number: u64) -> Option<Fault> {
        let (rng, rates) = self.rates.as_ref()?;
        let mut fraction = rng.of(key.as_str()).fraction(Draw::Fault, call as u64, number);
        let drawn = rates.iter().find(|(_, rate)| {
            fraction -= rate;
            fraction < 0.0
        });
        drawn.map(|(fault, _)| *fault)
    }
}

impl State {
    fn switch(&mut self, call: StoreCall) -> &mut Switch {
        match call {
            StoreCall::Acquire => &mut self.acquire,
            StoreCall::Settle => &mut self.settle,
        }
    }
}

impl<S: Store + 'static> FaultyStore<S> {
    async fn call<T, F>(&self, kind: StoreCall, key: &Key, call: impl Fn() -> F + Send) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let reply = apply(self.fault(kind, key), call);
        match self.timeout {
            None => reply.await,
            Some(timeout) => {
                time::timeout(timeout, reply).await.unwrap_or_else(|elapsed| Err(StoreError::unavailable(elapsed)))
            }
        }
    }
}

/// Makes the call with this fault.
async fn apply<T, F>(fault: Option<Fault>, call: impl Fn() -> F + Send) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let injected = || Err(StoreError::unavailable("injected fault"));
    match fault {
        None => call().await,
        Some(Fault::Refused) => injected(),
        Some(Fault::ReplyLost) => call().await.and_then(|_| injected()),
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
        Some(Fault::Unreachable) => pending().await,
    }
}

impl<S: Store + 'static> Store for FaultyStore<S> {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let (inner, key) = (Arc::clone(&self.inner), request.key.clone());
        let acquire = || {
            let (inner, request) = (Arc::clone(&inner), request.clone());
            async move { inner.acquire(request).await }
        };
        self.call(StoreCall::Acquire, &key, acquire).await
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let complete = || {
            let (inner, claim, result) = (Arc::clone(&self.inner), copy(claim), result.into_owned());
            async move { inner.complete(&claim, result.as_deref()).await }
        };
        self.call(StoreCall::Settle, claim.key(), complete).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        let fail = || {
            let (inner, claim) = (Arc::clone(&self.inner), copy(claim));
            async move { inner.fail(&claim, failure).await }
        };
        self.call(StoreCall::Settle, claim.key(), fail).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        let release = || {
            let (inner, request, claim) = (Arc::clone(&self.inner), request.clone(), claim.map(copy));
            async move { inner.release(&request, claim.as_ref()).await }
        };
        self.call(StoreCall::Settle, &request.key, release).await
    }

    fn part(&self, key: &Key) -> usize {
        self.inner.part(key)
    }
}

/// A copy of the claim, for a call that is executed after its owner dropped the claim.
fn copy(claim: &Claim) -> Claim {
    match Acquire::claimed(claim.request().clone(), claim.fence(), claim.attempt(), claim.is_recovery()) {
        Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => claim,
        Acquire::Duplicate { .. } | Acquire::Conflict { .. } | Acquire::Mismatch | Acquire::Failed => {
            unreachable!("`claimed` returns a claim")
        }
    }
}
