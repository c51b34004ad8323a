//! Whether each call on a cluster is tried as often as it may be, and where it may be.

use std::collections::BTreeMap;

use history::{Answer, Operation};

use super::{TIMER_US, TRIES};
use crate::connections::{Connection, Exchange};
use crate::function::NAMESPACE;
use crate::world::Run;

/// A script call with a record, and the number of its connection.
type Sent<'a> = (usize, &'a Exchange);

impl Run {
    /// What is wrong with the tries of calls on a cluster. Its client library may send one try several times.
    pub(super) fn wrong_tries(&self) -> Vec<String> {
        let mut sent: BTreeMap<(&str, &str), Vec<Sent<'_>>> = BTreeMap::new();
        for (number, Connection { client, exchanges, .. }) in self.connections.iter().enumerate() {
            for exchange in exchanges {
                for record in &exchange.records {
                    sent.entry((client, record)).or_default().push((number, exchange));
                }
            }
        }
        for sent in sent.values_mut() {
            sent.sort_by_key(|(_, exchange)| exchange.sent_us);
        }
        let calls = || self.history.keys.values().flatten().chain(&self.history.not_executed);
        let ended_us = |call: &Operation| call.returned_us.or(call.failed_us);
        let mut of_key: BTreeMap<_, Vec<&Operation>> = BTreeMap::new();
        for call in calls() {
            of_key.entry((&call.process, call.call.key())).or_default().push(call);
        }
        let wrong = |call: &Operation| {
            let (client, record) = (self.clients.get(&call.process)?, format!("{NAMESPACE}:{}", call.call.key()));
            let until_us = ended_us(call)?;
            let others = of_key.get(&(&call.process, call.call.key()))?;
            // When an acquire fails, its release begins.
            let is_of_one = |at_us: u64| {
                let may_send =
                    |other: &&&Operation| (other.invoked_us..=ended_us(other).unwrap_or(u64::MAX)).contains(&at_us);
                others.iter().filter(may_send).count() == 1
            };
            let own = sent.get(&(client.as_str(), record.as_str()))?.iter();
            let is_own = |sent_us: u64| (call.invoked_us..=until_us).contains(&sent_us) && is_of_one(sent_us);
            let own: Vec<_> = own.filter(|(_, exchange)| is_own(exchange.sent_us)).copied().collect();
            let what = self.wrong_tries_of(&own, call.answer == Answer::NotExecuted)?;
            Some(format!("{client}: {what}: {call}: {own:?}"))
        };
        calls().filter_map(wrong).collect()
    }

    fn wrong_tries_of(&self, sent: &[Sent<'_>], is_not_executed: bool) -> Option<&'static str> {
        let unanswered: Vec<_> = sent.iter().filter(|(_, exchange)| exchange.answered_us.is_none()).collect();
        // A known defect: the store takes this reply for one to every try of the client library.
        let is_forbidden =
            |(_, exchange): &Sent<'_>| exchange.error.as_deref().is_some_and(|error| error.starts_with("NOPERM"));
        if is_not_executed && !unanswered.is_empty() && !sent.iter().any(is_forbidden) {
            return Some("a call without a reply may have been executed");
        }
        let ends_us = |exchange: &Exchange| exchange.sent_us + self.timeout_us() - TIMER_US;
        let (mut tries, mut until_us) = (0, 0);
        for (_, exchange) in &unanswered {
            if exchange.sent_us >= until_us {
                (tries, until_us) = (tries + 1, ends_us(exchange));
            }
        }
        if tries > TRIES {
            return Some("tried too often");
        }
        let is_used_again = |(at, (number, first)): (usize, &Sent<'_>)| {
            sent[at + 1..].iter().any(|(later, next)| {
                let is_late = first.answered_us.is_none_or(|answered_us| answered_us > next.sent_us);
                later == number && is_late && next.sent_us >= ends_us(first)
            })
        };
        sent.iter().enumerate().any(is_used_again).then_some("tried again on the connection that has failed")
    }
}
