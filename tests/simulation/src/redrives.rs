//! An operator's commands on a dead-letter queue, by the program `letters`: docs/letters.md. SQS refuses calls, is slow, hangs
//! and loses replies; the command is interrupted or its process ends; another consumer receives letters, more of them
//! arrive, and messages that were sent back fail again.
//!
//! - `queues`: the queues, and the letters in them
//! - `keys`: where the function finds keys
//! - `host`: SQS, and the calls that it was sent
//! - `events`: what happens beside a command
//! - `command`: a command, and how it ended
//! - `verdict`: what is wrong with it

mod command;
mod events;
mod host;
mod keys;
mod queues;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use history::Rng;
use tokio::time::sleep;

use command::Command;
use events::Events;
use queues::Queues;

/// Number of commands of a seed, each on its own queues.
const COMMANDS: u64 = 32;

/// What is wrong with the commands of this seed.
pub async fn redrive_letters(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x4ed4);
    let mut wrong = Vec::new();
    for number in 0..COMMANDS {
        let events = Events::draw(rng);
        let queues = Arc::new(Queues::new(seed ^ number, if events.copies { 0.2 } else { 0.0 }, rng));
        let letters = queues.fill(rng).await;
        // The ages of letters are not whole seconds.
        sleep(Duration::from_millis(500)).await;
        let command = Command::draw(&letters, &queues, events, rng);
        let run = command.run(&queues, letters, events, rng).await;
        let faults = verdict::faults(&run, &queues);
        wrong.extend(faults.into_iter().map(|fault| format!("{fault}; {:?}, {:?}", run.command, run.events)));
    }
    wrong
}
