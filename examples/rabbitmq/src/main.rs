//! A RabbitMQ consumer that makes each payment once. `README.md` shows how to try it.
//!
//! ```text
//! queue ──▶ message ──▶ acquire ──▶ pay ──▶ settle ──▶ disposition ─┬─▶ ack
//!   ▲       message.rs  └── Idempotency::run ──┘   disposition.rs   ├─▶ delay queue ─▶ ack     delay.rs
//!   └───────────────────────── after the delay ─────────────────────┤
//!                                                                   └─▶ dead letter ─▶ ack     dead_letter.rs
//! ```
//!
//! | variable | default | |
//! |---|---|---|
//! | `AMQP_URL` | `amqp://127.0.0.1:5672/%2f` | RabbitMQ 3.10 or newer |
//! | `QUEUE` | `payments` | the queue; its delay queues and its dead-letter queue are named after it |
//! | `PREFETCH` | 16 | how many messages are worked on at a time |
//! | `REDIS_URL` | `redis://127.0.0.1:6379` | the store of idempotency records |
//! | `PAYMENTS_FILE` | `payments.jsonl` | gets a line of JSON for each payment |
//! | `WORK_MS` | 0 | how long a payment takes, ms |

mod consume;
mod dead_letter;
mod delay;
mod disposition;
mod message;
mod payments;
mod publish;
mod queues;
mod session;

use std::env;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::{Idempotency, Policy, RedisSettings, RedisStore};
use tokio::signal::unix::{SignalKind, signal};

use consume::Consumer;
use payments::Payments;
use queues::Queues;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let variable = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let work = Duration::from_millis(variable("WORK_MS", "0").parse()?);
    let url = variable("REDIS_URL", "redis://127.0.0.1:6379").parse()?;
    let store = RedisStore::new(&RedisSettings::new(url, "rabbitmq-payments"))?;
    let consumer = Arc::new(Consumer {
        idempotency: Idempotency::new(store, Policy::default()),
        payments: Payments::new(variable("PAYMENTS_FILE", "payments.jsonl").into(), work),
        // If the process is killed, redeliveries wait for this long. It must be shorter than RabbitMQ's
        // `consumer_timeout`, 30 minutes.
        timeout: work + Duration::from_secs(5),
    });
    let queues = Queues::new(&variable("QUEUE", "payments"));
    let (amqp, prefetch) = (variable("AMQP_URL", "amqp://127.0.0.1:5672/%2f"), variable("PREFETCH", "16").parse()?);

    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let stop = pin!(async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    });
    session::run(&consumer, &amqp, &queues, prefetch, stop).await;
    Ok(())
}
