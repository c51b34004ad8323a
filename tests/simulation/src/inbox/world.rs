//! What the callers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::inbox::Passwords;
use tokio::time::{Instant, sleep};

use super::calls::Call;
use super::work::Input;
use crate::postgres::Server;
use crate::{lock, network};

/// The longest session of a user with a password.
pub const MAX_SESSION: Duration = Duration::from_secs(1);

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

    /// After this time, nothing arrives between the caller and the server for so long, or until the call has ended.
    pub fn unreachable(self: &Arc<Self>, input: &Input, after: Duration, lasts: Duration) {
        let (world, hosts, call) = (Arc::clone(self), input.hosts.clone(), input.call);
        tokio::spawn(async move {
            sleep(after).await;
            let ends = lock(&world.calls)[call].ends;
            let left = ends.saturating_duration_since(Instant::now());
            network::partition(&hosts.caller, &hosts.server, lasts.min(left));
        });
    }
}
