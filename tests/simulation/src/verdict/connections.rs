//! Whether each process opens a connection if it needs one, and only then, and whether it uses none after it failed or
//! its session has ended.
//!
//! - `tries`: the tries of calls on a cluster

mod tries;

use std::collections::{BTreeMap, BTreeSet};

use history::{Answer, Operation};

use crate::connections::{Connection, Exchange};
use crate::servers::LoginKind;
use crate::world::Run;

/// Resolution of timeouts, µs.
const TIMER_US: u64 = 2_000;

/// Number of tries of a call of the store.
const TRIES: usize = 2;

impl Run {
    /// What is wrong with the connections of the processes. A cluster's client library opens connections by itself, and
    /// sends a call again.
    pub(super) fn wrong_connections(&self) -> Vec<String> {
        let mut wrong: Vec<_> = self.connections.iter().filter_map(|connection| self.outlived(connection)).collect();
        wrong.extend(self.wrong_logins());
        let exchanges = self.connections.iter().flat_map(|connection| &connection.exchanges);
        let refused = exchanges.filter(|exchange| exchange.error.as_deref().is_some_and(refuses_to_settle));
        wrong.extend(refused.map(|exchange| format!("a full server refused to settle: {exchange:?}")));
        if self.plan.servers > 1 {
            wrong.extend(self.wrong_tries());
            return wrong;
        }
        let clients: BTreeSet<_> = self.connections.iter().map(|connection| &connection.client).collect();
        for client in clients {
            let own: Vec<_> = self.connections.iter().filter(|connection| connection.client == *client).collect();
            for (number, [last, next]) in own.windows(2).filter_map(|two| two.first_chunk::<2>()).enumerate() {
                if !self.is_due(last, next) {
                    wrong
                        .push(format!("{client}: connection {} is opened without need: {last:?} {next:?}", number + 1));
                }
            }
            wrong.extend(own.iter().filter_map(|connection| self.used_after_failure(connection)));
            let provided = self.provided.iter().filter(|provided| *provided == client).count();
            if self.plan.redis.logins != LoginKind::None && provided != own.len() {
                wrong.push(format!("{client}: {} connections with {provided} logins", own.len()));
            }
        }
        wrong.extend(self.history.not_executed.iter().filter_map(|call| self.given_up_early(call)));
        let unanswered = self.history.keys.values().flatten().filter(|call| call.answer == Answer::Unknown);
        for call in unanswered.filter(|call| call.failed_us.is_some()) {
            wrong.extend(self.given_up_early(call));
            wrong.extend(self.doubted(call));
        }
        wrong
    }

    /// Connections that sign in twice, and tokens that are used again. On a cluster, the connections of a client that sign
    /// in while it is opened share one, also one that was dialled before.
    fn wrong_logins(&self) -> Vec<String> {
        let (mut wrong, mut known) = (Vec::new(), BTreeMap::new());
        for connection in &self.connections {
            let mut logins = connection.exchanges.iter().filter(|exchange| exchange.command == "AUTH");
            let Some(login) = logins.next() else { continue };
            if logins.next().is_some() {
                wrong.push(format!("{}: signs in twice: {connection:?}", connection.client));
            }
            let Some(token) = login.arguments.last() else { continue };
            let earlier = known.insert(token, (&connection.client, login.sent_us));
            let Some((client, sent_us)) = earlier.filter(|_| self.plan.redis.logins == LoginKind::Token) else {
                continue;
            };
            let is_opened_together = self.plan.servers > 1
                && *client == connection.client
                && sent_us.abs_diff(login.sent_us) <= 2 * self.timeout_us() + TIMER_US;
            if !is_opened_together {
                wrong.push(format!("{token}: is the login of two connections"));
            }
        }
        wrong
    }

    fn timeout_us(&self) -> u64 {
        us(self.plan.redis_timeout)
    }

    /// A call on a connection whose session has lasted too long. A call may send its script too.
    fn outlived(&self, connection: &Connection) -> Option<String> {
        let until_us = connection.dialled_us + us(self.plan.redis.max_session?) + 2 * self.timeout_us() + TIMER_US;
        let late = connection.exchanges.iter().find(|exchange| exchange.is_call() && exchange.sent_us > until_us)?;
        Some(format!("{}: sent in a session that had lasted too long: {late:?} {connection:?}", connection.client))
    }

    /// Whether the last connection may have failed before the next one was dialled, or its session had ended.
    fn is_due(&self, last: &Connection, next: &Connection) -> bool {
        let at_us = next.dialled_us;
        let session_us = self.plan.redis.max_session.map(us);
        session_us.is_some_and(|session_us| at_us >= last.dialled_us + session_us)
            || self.failures(last).any(|failed_us| failed_us <= at_us)
    }

    /// When a connection may have failed for its client.
    fn failures(&self, connection: &Connection) -> impl Iterator<Item = u64> {
        let opens_until_us = connection.dialled_us + self.timeout_us() - TIMER_US;
        let late_us = |exchange: &Exchange, until_us: u64| {
            (exchange.answered_us.is_none_or(|answered_us| answered_us >= until_us)).then_some(until_us)
        };
        let failed_us = connection.exchanges.iter().filter_map(move |exchange| {
            let refused_us = exchange.answered_us.filter(|_| exchange.error.as_deref().is_some_and(ends_connection));
            match &*exchange.command {
                "AUTH" => late_us(exchange, opens_until_us).or(refused_us),
                "CLIENT" | "SELECT" => late_us(exchange, opens_until_us),
                // Nothing depends on it.
                "INFO" => None,
                _ => late_us(exchange, exchange.sent_us + self.timeout_us() - TIMER_US).or(refused_us),
            }
        });
        let refused_us = connection.dropped_us.filter(|_| !connection.is_open);
        failed_us.chain(refused_us).chain(connection.broken_us)
    }

    /// A call that begins on a connection after another one has failed on it.
    fn used_after_failure(&self, connection: &Connection) -> Option<String> {
        let failed_us = |exchange: &Exchange| {
            let until_us = exchange.sent_us + self.timeout_us();
            let is_late = exchange.answered_us.is_none_or(|answered_us| answered_us > until_us + TIMER_US);
            let is_refused = exchange.error.as_deref().is_some_and(ends_connection);
            if is_late { Some(until_us) } else { exchange.answered_us.filter(|_| is_refused) }
        };
        let calls = || connection.exchanges.iter().filter(|exchange| exchange.is_call());
        let failed_us = calls().filter_map(failed_us).min()?;
        // An EVAL is of a call that began before.
        let is_later = |exchange: &&Exchange| exchange.command == "EVALSHA" && exchange.sent_us > failed_us + TIMER_US;
        let later = calls().find(is_later)?;
        Some(format!("{}: used after a call has failed on it: {later:?} {connection:?}", connection.client))
    }

    /// A call that the store gave up although fewer connections have failed meanwhile than it has tries.
    fn given_up_early(&self, call: &Operation) -> Option<String> {
        let during = call.invoked_us.saturating_sub(TIMER_US)..=call.failed_us? + TIMER_US;
        let own = self.connections_of(call);
        let failed = own.filter(|connection| self.failures(connection).any(|failed_us| during.contains(&failed_us)));
        let failed = failed.count() + usize::from(self.is_sent_in_vain(call, call.invoked_us));
        // Another connection has the same user.
        let is_forbidden = |exchange: &Exchange| {
            exchange.error.as_deref().is_some_and(|error| error.starts_with("NOPERM"))
                && exchange.answered_us.is_some_and(|us| during.contains(&us))
        };
        let mut exchanges = self.connections_of(call).flat_map(|connection| &connection.exchanges);
        (failed < TRIES && !exchanges.any(is_forbidden))
            .then(|| format!("{}: given up after {failed} failures: {call}", call.call.key()))
    }

    /// A call whose outcome is unknown, although no server can have executed it.
    fn doubted(&self, call: &Operation) -> Option<String> {
        let during = call.invoked_us..=call.failed_us? + TIMER_US;
        let sent = self.connections_of(call).flat_map(|connection| &connection.exchanges);
        let mut sent = sent.filter(|exchange| exchange.is_call() && during.contains(&exchange.sent_us));
        let may_have_run = |exchange: &Exchange| {
            let in_time = exchange.answered_us.is_some_and(|us| us + TIMER_US < exchange.sent_us + self.timeout_us());
            !in_time || !exchange.error.as_deref().is_some_and(is_refusal)
        };
        let is_wrong = !sent.any(may_have_run) && !self.is_sent_in_vain(call, *during.end());
        is_wrong.then(|| format!("{}: no server can have executed this call: {call}", call.call.key()))
    }

    /// Whether a try may have failed because its connection had broken by this time, and before it was sent. The client
    /// library does not know then whether it was sent.
    fn is_sent_in_vain(&self, call: &Operation, by_us: u64) -> bool {
        let until_us = call.failed_us.unwrap_or(u64::MAX);
        let own: Vec<_> =
            self.connections_of(call).take_while(|connection| connection.dialled_us <= until_us).collect();
        own.iter().enumerate().any(|(number, connection)| {
            let next = own.get(number + 1);
            let is_replaced = next.is_none_or(|next| next.dialled_us >= call.invoked_us);
            is_replaced && connection.broken_us.is_some_and(|broken_us| broken_us < by_us)
        })
    }

    fn connections_of<'a>(&'a self, call: &'a Operation) -> impl Iterator<Item = &'a Connection> {
        let client = self.clients.get(&call.process);
        self.connections.iter().filter(move |connection| Some(&connection.client) == client)
    }
}

impl Exchange {
    fn is_call(&self) -> bool {
        self.command.starts_with("EVAL")
    }
}

/// Whether a connection is not used after this reply. The others depend on the call alone.
fn ends_connection(error: &str) -> bool {
    let is_of_call = ["NOSCRIPT", "NOPERM", "WRONGTYPE"].iter().any(|code| error.starts_with(code));
    !is_of_call && !is_not_compiled(error)
}

/// Whether a server that is out of memory has not started a script that settles. An acquire is rejected at its first
/// write.
fn refuses_to_settle(error: &str) -> bool {
    error.starts_with("OOM allow-oom flag is not set")
}

/// Whether this reply to a script shows that it wrote nothing: it was not started, or is rejected at its first write.
fn is_refusal(error: &str) -> bool {
    !error.starts_with("ERR") || is_not_compiled(error) || error.contains("OOM command not allowed")
}

fn is_not_compiled(error: &str) -> bool {
    error.contains("compiling script") || error.contains("Unexpected flag")
}

fn us(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
