//! Opens a connection to one server, and sends commands.

use std::time::Duration;

use redis::cluster_async::{ClusterConnection, Connect};
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};
use redis::{AsyncConnectionConfig, Cmd, ConnectionInfo, FromRedisValue, RedisResult, Value};
use tokio::time::timeout;

use super::errors::timed_out;

/// A connection to one server.
#[cfg(not(feature = "simulation"))]
pub(super) type Node = redis::aio::MultiplexedConnection;
#[cfg(feature = "simulation")]
pub(super) use super::simulation::Node;

/// An open connection.
#[derive(Clone)]
pub(super) enum Wire {
    Server(Node),
    Cluster(ClusterConnection<Node>),
}

impl Wire {
    /// Sends a command and returns its reply.
    pub(super) async fn send<T: FromRedisValue>(&mut self, command: &Cmd, limit: Duration) -> RedisResult<T> {
        match self {
            Self::Server(connection) => within(limit, command.query_async(connection)).await,
            Self::Cluster(connection) => within(limit, command.query_async(connection)).await,
        }
    }

    /// Sends a command without keys to the master of this key's slot, and returns its reply.
    pub(super) async fn send_to_master<T: FromRedisValue>(
        &mut self,
        key: &str,
        command: Cmd,
        limit: Duration,
    ) -> RedisResult<T> {
        let Self::Cluster(connection) = self else { return self.send(&command, limit).await };
        let route = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
        // To follow a redirection, the client library sends ASKING and then the redirected command, and another command
        // may be sent between them. The node would accept a key that is not migrated to it yet, and there would be two
        // records of it. So a PING precedes the command, in the same write: it takes the ASKING.
        let mut pipeline = redis::pipe();
        pipeline.ping().add_command(command);
        let replies = within(limit, connection.route_pipeline(pipeline, 1, 1, route)).await?;
        let reply = replies.into_iter().next().unwrap_or(Value::Nil).extract_error()?;
        Ok(redis::from_redis_value(reply)?)
    }
}

/// Opens a connection to this server.
pub(super) async fn connect(server: ConnectionInfo) -> RedisResult<Node> {
    // The caller has a timeout for both.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    Node::connect_with_config(server, config).await
}

/// The reply to this call, or an error after `limit`.
pub(super) async fn within<T>(limit: Duration, call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let reply = timeout(limit, call).await;
    reply.unwrap_or_else(|_elapsed| Err(timed_out("no reply from Redis within the timeout")))
}
