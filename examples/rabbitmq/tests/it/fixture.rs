//! Servers, queues and a consumer of one test.

use harness::redis::Redis;

use crate::broker::Broker;
use crate::consumer::{Consumer, Settings};
use crate::queues::Queues;

pub(crate) struct Fixture {
    pub(crate) redis: Redis,
    pub(crate) queues: Queues,
    pub(crate) settings: Settings,
}

impl Fixture {
    /// Servers and queues without a consumer. `None` if RabbitMQ is not installed.
    pub(crate) async fn start() -> Option<Self> {
        let broker = Broker::shared()?;
        // Nothing is lost when it is killed.
        let redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
        let queues = Queues::connect(broker).await;
        let (amqp_port, redis_url, queue) = (broker.port, redis.url(), queues.work.clone());
        let settings = Settings { amqp_port, redis_url, queue, work_ms: 0, prefetch: 16 };
        Some(Self { redis, queues, settings })
    }

    /// As [`start`](Self::start), with a consumer whose payments take this long.
    pub(crate) async fn with_consumer(work_ms: u64) -> Option<(Self, Consumer)> {
        let fixture = Self::start().await?;
        let consumer = Consumer::start(Settings { work_ms, ..fixture.settings.clone() }).await;
        Some((fixture, consumer))
    }

    /// Waits until so many messages have acquired their record.
    pub(crate) async fn in_flight(&self, count: u64) {
        let mut connection = self.redis.connection().await;
        harness::soon(async {
            loop {
                let records: u64 = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
                if records >= count {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}
