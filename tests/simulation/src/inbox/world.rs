//! What the callers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};
use tokio::time::{Instant, sleep};

use super::calls::Call;
use super::work::Input;
use crate::postgres::Server;
use crate::{lock, network};

/// The password of the users that need none, and a value of parameters. No error may contain it.
pub const SECRET: &str = "secret-4711";

/// The user that needs a password.
pub const PAYER: &str = "payer";

/// What happens to all callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server is down, or has just ended all sessions.
    Down,
    /// Statements were cancelled.
    Cancelled,
    ReadOnly,
    Password,
}

/// A time in which this happened.
#[derive(Clone, Copy, Debug)]
pub struct Disturbance {
    pub fault: Fault,
    pub from: Instant,
    pub until: Instant,
}

pub struct World {
    pub server: Server,
    pub calls: Mutex<Vec<Call>>,
    pub disturbances: Mutex<Vec<Disturbance>>,
    /// The rows of the operator: consumer, key, and from when until when they were locked.
    pub held: Mutex<Vec<(&'static str, String, Instant, Instant)>>,
    pub passwords: Passwords,
    fences: AtomicU64,
}

impl World {
    pub fn new(server: Server, passwords: Passwords) -> Self {
        let (calls, disturbances, held) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { server, calls, disturbances, held, passwords, fences: AtomicU64::new(100) }
    }

    pub fn next_fence(&self) -> u64 {
        self.fences.fetch_add(1, Ordering::Relaxed)
    }

    /// After this time, nothing arrives between the caller and the server until the call has ended.
    pub fn unreachable(self: &Arc<Self>, input: &Input, after: Duration) {
        let (world, hosts, call) = (Arc::clone(self), input.hosts.clone(), input.call);
        tokio::spawn(async move {
            sleep(after).await;
            let ends = lock(&world.calls)[call].ends;
            let lasts = ends.saturating_duration_since(Instant::now());
            network::partition(&hosts.caller, &hosts.server, lasts);
        });
    }
}

/// The password that the server accepts.
#[derive(Clone, Debug, Default)]
pub struct Passwords(Arc<Mutex<String>>);

impl Passwords {
    pub fn accept(&self, user: &str, password: &str) -> bool {
        user != PAYER || password == *lock(&self.0)
    }

    pub fn replace(&self, password: String) {
        *lock(&self.0) = password;
    }

    /// The source of one caller. Its sessions have a limited time.
    pub fn source(&self) -> Cached {
        Cached { current: self.clone(), known: Mutex::new(lock(&self.0).clone()) }
    }
}

/// The longest session of [`PAYER`].
pub const MAX_SESSION: Duration = Duration::from_secs(4);

/// Returns the password that it knows until that is rejected.
#[derive(Debug)]
pub struct Cached {
    current: Passwords,
    known: Mutex<String>,
}

impl CredentialsSource for Cached {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        let current = lock(&self.current.0).clone();
        let mut known = lock(&self.known);
        if rejected.is_some_and(|rejected| rejected.password == *known) {
            *known = current;
        }
        let login = Login { user: Some(PAYER.to_owned()), password: known.clone() };
        Box::pin(async move { Ok(login) })
    }

    fn max_session(&self) -> Option<Duration> {
        Some(MAX_SESSION)
    }
}
