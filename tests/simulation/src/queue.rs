//! The queues of a plan, and the event source mapping.

use std::time::Duration;

use idempotent_sqs_testing::{DeadLetter, Mapping, MappingSettings, Queue, QueueSettings};

use crate::plan::Plan;

/// The region of the queue of the function.
pub const REGION: &str = "eu-central-1";

/// The queue of the function.
pub fn queue(plan: &Plan) -> Queue {
    let (visibility_timeout, rate) = (plan.visibility_timeout, f64::from(plan.duplicates) / 1000.0);
    let redrive_policy = || DeadLetter { queue: standard_or_fifo("redriven", plan.fifo, plan), max_receive_count: 13 };
    let settings = QueueSettings {
        name: name("payments", plan.fifo),
        visibility_timeout,
        dead_letter: plan.is_own_letter_queue.then(redrive_policy),
        concurrent_delivery_rate: rate,
        redelivery_rate: rate,
        ..QueueSettings::default()
    };
    Queue::new(settings, plan.seed)
}

/// The queue to which the function sends dead letters.
pub fn dead_letter_queue(plan: &Plan) -> Queue {
    let settings = QueueSettings {
        name: name("payments-dead", plan.has_fifo_letters()),
        region: letters_region(plan).to_owned(),
        ..QueueSettings::default()
    };
    Queue::new(settings, plan.seed)
}

/// The region of its dead-letter queue, half of the time another one.
pub fn letters_region(plan: &Plan) -> &'static str {
    if plan.seed.is_multiple_of(2) && !plan.is_own_letter_queue { "us-east-1" } else { REGION }
}

/// The mapping of the queue.
pub fn mapping(queue: &Queue, plan: &Plan) -> Mapping {
    let settings = MappingSettings {
        batch_size: plan.batch_size,
        // A batch of more than ten messages needs one.
        batching_window: Duration::from_secs(u64::from(plan.batch_size > 10)),
        function_timeout: plan.function_timeout,
        throttle_rate: 0.02,
        delete_loss_rate: if plan.is_quiet { 0.0 } else { 0.05 },
        ..MappingSettings::default()
    };
    Mapping::new(queue, settings)
}

fn standard_or_fifo(base: &str, is_fifo: bool, plan: &Plan) -> Queue {
    Queue::new(QueueSettings { name: name(base, is_fifo), ..QueueSettings::default() }, plan.seed)
}

fn name(base: &str, is_fifo: bool) -> String {
    format!("{base}{}", if is_fifo { ".fifo" } else { "" })
}
