//! Connections to RabbitMQ: one after the other until the process is asked to end.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::consume::Consumer;
use crate::publish::Publisher;
use crate::queues::Queues;

/// Pause before a new connection after the last one was lost.
const RECONNECT: Duration = Duration::from_secs(1);

/// Longest time for broker confirms after the last run has ended, and for the closing of a connection.
const GRACE: Duration = Duration::from_secs(5);

type Failure = Box<dyn Error + Send + Sync>;

/// How a session ended without an error.
enum Ended {
    /// The process is asked to end.
    Stopped,
    /// As many messages as were asked for are handled.
    Enough,
}

/// Consumes until `stop` completes. Connects again whenever the connection is lost: the messages that were not
/// acknowledged are then delivered again.
///
/// A message that the client cannot parse ends each connection that it is delivered on, and RabbitMQ counts a delivery
/// of all that were delivered with it. So after a lost connection the messages that may have been delivered with it are
/// taken one at a time, and only the message that ends the connection reaches the delivery limit.
pub(crate) async fn run<S>(consumer: &Arc<Consumer>, url: &str, queues: &Queues, prefetch: u16, mut stop: Pin<&mut S>)
where
    S: Future<Output = ()>,
{
    let mut one_at_a_time = false;
    loop {
        let (taken, enough) = if one_at_a_time { (1, prefetch.into()) } else { (prefetch, usize::MAX) };
        let session = tokio::select! {
            () = &mut stop => return,
            session = Session::open(url, queues, taken) => session,
        };
        let ended = match session {
            Ok(session) => session.consume(consumer, enough, &mut stop).await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(Ended::Stopped) => return,
            Ok(Ended::Enough) => one_at_a_time = false,
            Err(error) => {
                tracing::warn!(%error, "not connected to RabbitMQ");
                one_at_a_time = true;
                tokio::select! {
                    () = &mut stop => return,
                    () = sleep(RECONNECT) => {}
                }
            }
        }
    }
}

/// Two connections. RabbitMQ blocks connections that publish while it is short of memory or disk; acknowledgements must
/// not be blocked with them.
struct Session {
    consuming: Connection,
    publishing: Connection,
    channel: Channel,
    deliveries: lapin::Consumer,
    publisher: Arc<Publisher>,
}

impl Session {
    async fn open(url: &str, queues: &Queues, prefetch: u16) -> Result<Self, Failure> {
        let publishing = Connection::connect(url, ConnectionProperties::default()).await?;
        let publisher = Arc::new(Publisher::open(&publishing, queues.clone()).await?);
        let consuming = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = consuming.create_channel().await?;
        queues.declare(&channel).await?;
        // All messages that were delivered are worked on, so this bounds the concurrency.
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let deliveries = channel.basic_consume(queues.work().into(), "".into(), options, arguments).await?;
        tracing::info!(queue = queues.work(), "consuming");
        Ok(Self { consuming, publishing, channel, deliveries, publisher })
    }

    /// Consumes until `stop` completes, `enough` messages are handled, or a connection is lost. Then waits for the
    /// messages that are worked on.
    async fn consume<S>(
        mut self,
        consumer: &Arc<Consumer>,
        enough: usize,
        stop: &mut Pin<&mut S>,
    ) -> Result<Ended, Failure>
    where
        S: Future<Output = ()>,
    {
        let (ending, is_ending) = watch::channel(false);
        let mut running = JoinSet::new();
        let mut handled = 0;
        let ended = loop {
            tokio::select! {
                () = &mut *stop => break Ok(Ended::Stopped),
                Some(outcome) = running.join_next() => match outcome {
                    Ok(Ok(())) => {
                        handled += 1;
                        if handled >= enough {
                            break Ok(Ended::Enough);
                        }
                    }
                    Ok(Err(error)) => break Err(Failure::from(error)),
                    Err(panic) => break Err(panic.into()),
                },
                next = self.deliveries.next() => match next {
                    Some(Ok(delivery)) => {
                        let (consumer, publisher) = (Arc::clone(consumer), Arc::clone(&self.publisher));
                        let is_ending = is_ending.clone();
                        running.spawn(async move { consumer.handle(&delivery, &publisher, is_ending).await });
                    }
                    Some(Err(error)) => break Err(error.into()),
                    None => break Err("RabbitMQ has cancelled the consumer".into()),
                },
            }
        };
        ending.send_replace(true);
        // No more messages. Those that were delivered and not started are delivered again once the connection is
        // closed.
        let cancel = self.channel.basic_cancel(self.deliveries.tag(), BasicCancelOptions::default());
        let _ = timeout(GRACE, cancel).await;
        // A connection that was lost cannot be acknowledged on, but work that has begun is settled in the store, and
        // its redelivery is then a duplicate.
        let drain = async { while running.join_next().await.is_some() {} };
        let _ = timeout(consumer.timeout + GRACE, drain).await;
        for connection in [&self.consuming, &self.publishing] {
            // Writes the acknowledgements first.
            let _ = timeout(GRACE, connection.close(200, "OK".into())).await;
        }
        ended
    }
}
