//! Slots that move to another server, or are being moved.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use history::Rng;

use super::{NAMESPACE, RECORDS, Sharer, wrong_warnings};
use crate::redis::slot;

impl Sharer {
    /// Records whose slots have moved are sent alone, once. Then they share calls with the others of their server.
    pub(super) async fn move_slots(&self, rng: &mut Rng) -> Vec<String> {
        let mut wrong = self.wrong_first().await;
        // Fewer than half of the records of a server, so that no call is in vain.
        let records: Vec<_> = (0..RECORDS).map(|number| format!("{NAMESPACE}:moved-{number}")).collect();
        let mut moved = BTreeSet::new();
        for record in records.iter().filter(|_| rng.happens(150)) {
            let moved_slot = slot(record.as_bytes());
            let owner = self.cluster.owner(moved_slot);
            self.cluster.begin_move(moved_slot, 1 - owner);
            while self.cluster.step_move(moved_slot) {}
            moved.extend(records.iter().filter(|other| slot(other.as_bytes()) == moved_slot));
        }
        let burst = self.burst("moved", RECORDS).await;
        wrong.extend(burst.wrong_answers());
        let alone: BTreeSet<_> =
            burst.calls.iter().filter(|call| call.declares_keys).flat_map(|call| &call.records).collect();
        if alone != moved || burst.shared() != 2 {
            wrong.push(format!("{moved:?} have moved: the calls {:?}", burst.calls));
        }
        // In conflict with themselves.
        let again = self.burst("moved", RECORDS).await;
        if again.calls.len() != 2 || again.shared() != 2 {
            wrong.push(format!("{moved:?} have moved before: the calls {:?}", again.calls));
        }
        wrong.extend(self.wrong_sharing("afterwards").await);
        wrong.extend(wrong_warnings(0));
        wrong
    }

    /// Each record of a slot that is being moved is sent to its server, and then once to the next one: its ASKING is for
    /// no other record.
    pub(super) async fn acquire_in_a_moving_slot(&self) -> Vec<String> {
        const MOVING: usize = 4;
        let mut wrong = self.wrong_first().await;
        let moving = slot(b"{moving}");
        self.cluster.begin_move(moving, 1 - self.cluster.owner(moving));
        let burst = self.burst("{moving}", MOVING).await;
        wrong.extend(burst.wrong_answers());
        if burst.shared() != 1 || burst.calls.len() != 1 + 2 * MOVING {
            wrong.push(format!("the calls {:?}", burst.calls));
        }
        wrong.extend(self.wrong_beside_others().await);
        wrong
    }

    /// Concurrent callers, whose calls can take the ASKING of each other.
    async fn wrong_beside_others(&self) -> Vec<String> {
        const CALLERS: usize = 6;
        let caller = async |caller: usize| {
            let mut wrong = Vec::new();
            for round in 0..10 {
                wrong.extend(self.burst(&format!("{{moving}}-{caller}-{round}"), 1).await.wrong_answers());
            }
            wrong
        };
        join_all((0..CALLERS).map(caller)).await.concat()
    }
}
