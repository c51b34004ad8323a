//! What happens beside a command.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::Rng;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::host::Rates;
use super::queues::{ATTRIBUTES, Arrival, Letter, Origin, Queues};
use crate::lock;

/// What happens beside a command.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "none of them excludes another")]
pub struct Events {
    pub rates: Rates,
    /// Another consumer receives letters.
    pub other_consumer: bool,
    /// More letters arrive.
    pub arrivals: bool,
    /// Messages that were sent back fail again.
    pub failures: bool,
    /// The queues deliver more than once.
    pub copies: bool,
    pub interrupted_after: Option<Duration>,
    pub killed_after: Option<Duration>,
}

impl Events {
    pub fn draw(rng: &mut Rng) -> Self {
        let mut events = Self { arrivals: rng.happens(300), failures: rng.happens(300), ..Self::default() };
        let after = rng.ms(0..20_000);
        match rng.draw(0..10) {
            0 | 1 => {}
            2 => events.rates.refusals = *rng.pick(&[400, 700]),
            3 => events.rates.failed_entries = 500,
            4 | 5 => events.rates.faults = *rng.pick(&[100, 250]),
            6 => (events.rates.faults, events.copies) = (*rng.pick(&[0, 50]), true),
            7 => events.other_consumer = true,
            8 => (events.rates.faults, events.interrupted_after) = (*rng.pick(&[0, 100]), Some(after)),
            _ => (events.rates.faults, events.killed_after) = (*rng.pick(&[0, 100]), Some(after)),
        }
        events
    }

    /// Whether each letter can be received, and each call but sends succeeds.
    pub fn are_harmless(&self) -> bool {
        let Self { rates, other_consumer, arrivals: _, failures: _, copies, interrupted_after, killed_after } = self;
        let Rates { faults, refusals: _, failed_entries } = rates;
        let ends_early = interrupted_after.is_some() || killed_after.is_some();
        *faults == 0 && *failed_entries == 0 && !other_consumer && !copies && !ends_early
    }

    /// Starts the tasks of these events.
    pub fn start(
        self,
        queues: &Arc<Queues>,
        letters: &Arc<Mutex<Vec<Letter>>>,
        received_by_other: &Arc<Mutex<Vec<(Instant, String)>>>,
        rng: &mut Rng,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if self.other_consumer {
            tasks.spawn(receive_letters(Arc::clone(queues), Arc::clone(received_by_other), rng.fork()));
        }
        if self.arrivals {
            tasks.spawn(add_letters(Arc::clone(queues), Arc::clone(letters), rng.fork()));
        }
        if self.failures {
            tasks.spawn(fail_again(Arc::clone(queues), Arc::clone(letters), rng.fork()));
        }
        tasks
    }
}

/// Another consumer, which receives letters and leaves them in the queue.
async fn receive_letters(queues: Arc<Queues>, received: Arc<Mutex<Vec<(Instant, String)>>>, mut rng: Rng) {
    loop {
        sleep(rng.ms(200..3000)).await;
        let (most, hidden) = (rng.draw(1..4), Duration::from_secs(rng.draw(0..8)));
        let letters = queues.dead.receive_for(usize::try_from(most).unwrap_or(1), hidden).unwrap_or_default();
        lock(&received).extend(letters.into_iter().map(|letter| (Instant::now(), letter.message_id)));
    }
}

/// The function sends more letters.
async fn add_letters(queues: Arc<Queues>, letters: Arc<Mutex<Vec<Letter>>>, mut rng: Rng) {
    for number in 1000..1000 + rng.draw(1..6) {
        sleep(rng.ms(2..2000)).await;
        let letter = queues.add(number, Arrival::DuringRun, &mut rng);
        lock(&letters).push(letter);
    }
}

/// The function receives what was sent back, and half of it fails again.
async fn fail_again(queues: Arc<Queues>, letters: Arc<Mutex<Vec<Letter>>>, mut rng: Rng) {
    loop {
        sleep(rng.ms(100..1000)).await;
        for queue in [&queues.payments, &queues.other] {
            for received in queue.receive(10) {
                queue.delete(&received.receipt_handle).expect("it was just received");
                let json = serde_json::to_value(&received).expect("it is JSON");
                let trace = json["attributes"]["AWSTraceHeader"].as_str();
                let before = lock(&letters).iter().find(|letter| letter.is_of(&received.body, trace)).cloned();
                let Some(before) = before.filter(|_| rng.happens(500)) else { continue };
                let attributes = json["messageAttributes"].as_object().into_iter().flatten();
                let text = |value: &Value| value["stringValue"].as_str().unwrap_or_default().to_owned();
                let mut again = Letter {
                    original_id: received.message_id,
                    origin: if before.origin == Origin::RedrivePolicy { Origin::Function } else { before.origin },
                    outcome: "FAILED_PERMANENTLY",
                    attributes: attributes.map(|(name, value)| (name.clone(), text(value))).collect(),
                    arrival: Arrival::Again,
                    ..before
                };
                if again.attributes.len() >= ATTRIBUTES {
                    again.origin = Origin::Unknown;
                }
                queues.put(&mut again);
                lock(&letters).push(again);
            }
        }
    }
}
