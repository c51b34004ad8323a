//! Whether each script call has records whose callers wait for it, and declares the key of a record that is alone.

use std::collections::{BTreeMap, BTreeSet};

use history::{Call, Operation};

use crate::connections::{Connection, Exchange};
use crate::function::{Invoked, NAMESPACE};
use crate::plan::Fault;
use crate::world::Run;

use super::invocations::{CLOCK_US, PAUSE_US, is_during};

impl Run {
    /// What is wrong with the script calls of processes that always run.
    pub(super) fn wrong_script_calls(&self) -> Vec<String> {
        if self.plan.has(Fault::Freeze) {
            return Vec::new();
        }
        let processes: BTreeMap<_, _> = self.clients.iter().map(|(process, client)| (client, process)).collect();
        let mut wrong = Vec::new();
        for Connection { client, exchanges, .. } in &self.connections {
            let Some(process) = processes.get(client) else { continue };
            let own = || self.invocations.iter().filter(|invoked| invoked.process == **process);
            for exchange in exchanges.iter().filter(|exchange| !exchange.records.is_empty()) {
                // An invocation that timed out has no end.
                let Some(invoked) = own().find(|invoked| is_during(exchange.sent_us, invoked)) else { continue };
                wrong.extend(
                    self.wrong_script_call(invoked, exchange).map(|what| format!("{client}: {what}: {exchange:?}")),
                );
            }
            wrong.extend(own().filter_map(|invoked| self.unshared(invoked, client)));
        }
        wrong
    }

    /// The acquires with which an invocation begins, if they have more script calls than they need: one, or one for
    /// each server of a cluster. Only without faults is none sent again.
    fn unshared(&self, invoked: &Invoked, client: &str) -> Option<String> {
        let servers = self.plan.servers;
        if !self.plan.is_quiet || servers > 1 && !self.plan.redis.shares_calls {
            return None;
        }
        let is_acquire = |call: &&Operation| matches!(call.call, Call::Acquire { .. }) && !call.is_of_dead_letter();
        let acquires: Vec<_> = self.calls(invoked).into_iter().filter(is_acquire).collect();
        let first_us = acquires.iter().map(|acquire| acquire.invoked_us).min()?;
        let keys = acquires.iter().filter(|acquire| acquire.invoked_us == first_us).map(|acquire| acquire.call.key());
        let connections = self.connections.iter().filter(|connection| connection.client == client);
        let exchanges: Vec<_> = connections.flat_map(|connection| &connection.exchanges).collect();
        let first_call = |key: &str| {
            let record = format!("{NAMESPACE}:{key}");
            let of_key = exchanges.iter().filter(|sent| sent.sent_us >= first_us && sent.records.contains(&record));
            of_key.min_by_key(|sent| sent.sent_us).map(|sent| &sent.records)
        };
        let calls: BTreeSet<_> = keys.filter_map(first_call).collect();
        (calls.len() > servers).then(|| format!("{client}: these acquires could share calls: {calls:?}"))
    }

    fn wrong_script_call(&self, invoked: &Invoked, exchange: &Exchange) -> Option<&'static str> {
        let is_waited_for = |record: &String| {
            let key = record.strip_prefix(NAMESPACE).and_then(|key| key.strip_prefix(':')).unwrap_or_default();
            let calls = self.history.keys.get(key).into_iter().flatten();
            let calls = calls.chain(self.history.not_executed.iter().filter(|call| call.call.key() == key));
            let mut own = calls.filter(|call| call.process == invoked.process && call.invoked_us <= exchange.sent_us);
            own.any(|call| exchange.sent_us <= self.waits_until_us(invoked, call))
        };
        // The client library of a cluster sends a call again by itself.
        let is_cluster = self.plan.servers > 1;
        if !is_cluster && !exchange.records.iter().all(is_waited_for) {
            return Some("no caller waits for a record of this call");
        }
        // A call that records share may have lost all others.
        let has_time = exchange.sent_us < self.work_ends_us(invoked);
        let is_alone = exchange.records.len() == 1 && !exchange.declares_keys;
        (is_alone && has_time).then_some("a record that is alone declares no key, and is not redirected")
    }

    /// Until when a caller waits for the answer, µs.
    fn waits_until_us(&self, invoked: &Invoked, call: &Operation) -> u64 {
        let ended_us = call.returned_us.or(call.failed_us);
        let ends_us = match call.call {
            Call::Acquire { .. } if call.is_of_dead_letter() => self.letters_end_us(invoked),
            Call::Acquire { .. } => self.work_ends_us(invoked),
            Call::Complete { .. } | Call::Fail { .. } | Call::Release { .. } => {
                self.settling_ends_us(invoked) + PAUSE_US
            }
        };
        ended_us.unwrap_or(ends_us + CLOCK_US)
    }
}
