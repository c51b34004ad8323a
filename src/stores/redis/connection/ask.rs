//! Plain commands, of which an operator's look at the records is made.

use std::time::Duration;

use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, FromRedisValue, RedisResult};
use tokio::time::timeout;

use super::{Connection, TRIES, Target, Wire, repeats_on_any_connection, too_late};

impl Connection {
    pub(in crate::stores::redis) fn is_cluster(&self) -> bool {
        match self.target {
            Target::Server(_) => false,
            Target::Cluster(_) => true,
        }
    }

    /// The reply to a command, which may be asked twice. `at` leads to the master that keeps a slot;
    /// without it the client finds the node by the command's key, or asks them all.
    pub(in crate::stores::redis) async fn ask<T: FromRedisValue>(
        &self,
        at: Option<Route>,
        command: &Cmd,
    ) -> RedisResult<T> {
        let mut last = too_late("nothing was tried");
        for _ in 0..TRIES {
            match self.try_ask(at, command).await {
                Err(error) if !repeats_on_any_connection(&error) => last = error,
                outcome => return outcome,
            }
        }
        Err(last)
    }

    async fn try_ask<T: FromRedisValue>(&self, at: Option<Route>, command: &Cmd) -> RedisResult<T> {
        let (dial, mut wire) = self.wire().await?;
        let outcome = wire.ask_at(at, command, self.timeout).await;
        if let Err(error) = &outcome
            && !repeats_on_any_connection(error)
        {
            self.drop_wire(dial, error).await;
        }
        outcome
    }
}

impl Wire {
    async fn ask_at<T: FromRedisValue>(&mut self, at: Option<Route>, command: &Cmd, limit: Duration) -> RedisResult<T> {
        match (at, self) {
            (Some(master), Self::Cluster(connection)) => {
                let node = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(master));
                let reply = timeout(limit, connection.route_command(command.clone(), node)).await;
                let reply = reply.unwrap_or_else(|_elapsed| Err(too_late("no reply from Redis in time")))?;
                Ok(redis::from_redis_value(reply)?)
            }
            (None | Some(_), wire) => wire.ask(command, limit).await,
        }
    }
}
