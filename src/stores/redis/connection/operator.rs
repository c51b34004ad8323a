//! Plain commands for the operator's view of the records.

use std::time::Duration;

use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, FromRedisValue, RedisResult};

use super::errors::{repeats_on_any_connection, timed_out};
use super::wire::{Wire, within};
use super::{Connection, TRIES};

impl Connection {
    pub(in crate::stores::redis) fn is_cluster(&self) -> bool {
        self.target.is_cluster()
    }

    /// Sends a command, at most twice, and returns its reply. `route` selects the master of a slot; without it the
    /// client finds the node by the command's key, or sends the command to all nodes.
    pub(in crate::stores::redis) async fn send<T: FromRedisValue>(
        &self,
        route: Option<Route>,
        command: &Cmd,
    ) -> RedisResult<T> {
        let mut last = timed_out("no try was made");
        for n in 0..TRIES {
            match self.try_send(route, command, n > 0).await {
                Err(error) if !repeats_on_any_connection(&error) => last = error,
                outcome => return outcome,
            }
        }
        Err(last)
    }

    /// Sends a command once.
    pub(super) async fn try_send<T: FromRedisValue>(
        &self,
        route: Option<Route>,
        command: &Cmd,
        is_retry: bool,
    ) -> RedisResult<T> {
        let (dial, mut wire) = self.wire(is_retry).await?;
        let outcome = wire.send_to(route, command, self.timeout).await;
        if let Err(error) = &outcome
            && !repeats_on_any_connection(error)
        {
            self.drop_wire(dial, error).await;
        }
        outcome
    }
}

impl Wire {
    async fn send_to<T: FromRedisValue>(
        &mut self,
        route: Option<Route>,
        command: &Cmd,
        limit: Duration,
    ) -> RedisResult<T> {
        match (route, self) {
            (Some(master), Self::Cluster(connection)) => {
                let node = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(master));
                let reply = within(limit, connection.route_command(command.clone(), node)).await?;
                Ok(redis::from_redis_value(reply)?)
            }
            (None | Some(_), wire) => wire.send(command, limit).await,
        }
    }
}
