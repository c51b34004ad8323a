//! What happens to both servers while rows are copied.

use std::sync::Arc;
use std::time::Duration;

use history::Rng;
use tokio::time::{Instant, sleep};

use super::{COPIERS, DATABASES, World};
use crate::{lock, network};

/// A fault, and how long it lasted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) what: What,
    pub(super) from: Instant,
    pub(super) until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Redis loses all records.
    Flushed,
    /// A server is down, or a connection ends or is silent.
    Interrupted,
    /// The next such statement of this copier fails with this SQLSTATE.
    Statement(usize, &'static str),
}

/// The begin of a statement of each kind, and SQLSTATEs with which it fails.
const FAILURES: [(&str, &str); 7] = [
    ("SELECT loss_probe", "42P01"),
    ("SELECT loss_probe", "42501"),
    ("SELECT key", "42703"),
    ("SELECT least", "53200"),
    ("INSERT INTO idempotency_backfill", "42501"),
    ("INSERT INTO idempotency_backfill", "57P01"),
    ("COMMIT", "40001"),
];

/// Longer than all runs: when the statement is executed is not known.
const WHOLE_RUN: Duration = Duration::from_secs(3600);

/// What fails without a statement that was chosen.
const OUTAGE: Duration = Duration::from_millis(900);

/// Disturbs both copiers, again and again.
pub(super) async fn disturb(world: Arc<World>, mut rng: Rng) {
    loop {
        sleep(rng.ms(100..2500)).await;
        let from = Instant::now();
        let copier = usize::from(rng.happens(500));
        let server = rng.pick(&world.redis.servers).clone();
        let note = |what, until| world.note(what, from, until);
        match rng.draw(0..9) {
            0 | 1 => {
                world.redis.servers.iter().for_each(crate::redis::Server::flush);
                note(What::Flushed, from);
            }
            2 => {
                note(What::Interrupted, from + OUTAGE);
                let down = rng.ms(1..900);
                // It starts again also after the last fault.
                tokio::spawn(async move { server.restart(down).await });
            }
            3 => {
                network::cut(COPIERS[copier], DATABASES[copier]);
                network::cut(COPIERS[copier], server.name());
                note(What::Interrupted, from);
            }
            4 => {
                let lasts = rng.ms(1..900);
                network::partition(COPIERS[copier], server.name(), lasts);
                note(What::Interrupted, from + lasts);
            }
            5 => {
                world.database.end_sessions();
                note(What::Interrupted, from);
            }
            6 => world.hang_count(copier),
            _ => {
                let (statement, sqlstate) = *rng.pick(&FAILURES);
                world.database.fail_next(DATABASES[copier], statement, sqlstate);
                note(What::Statement(copier, sqlstate), from + WHOLE_RUN);
            }
        }
    }
}

impl World {
    fn note(&self, what: What, from: Instant, until: Instant) {
        lock(&self.faults).push(Fault { what, from, until });
    }

    /// The next count of this copier does not end by itself. By its timeout the statement fails, and the session stays.
    pub(super) fn hang_count(&self, copier: usize) {
        self.database.hang_next(DATABASES[copier], "SELECT count(*)");
        let from = Instant::now();
        self.note(What::Statement(copier, "57014"), from, from + WHOLE_RUN);
    }
}
