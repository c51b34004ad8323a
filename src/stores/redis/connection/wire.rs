//! Opens a connection to one server, and sends commands.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, RedisResult};
use tokio::time::timeout;

use super::errors::timed_out;

/// An open connection.
#[derive(Clone)]
pub(super) enum Wire {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Wire {
    /// Sends a command and returns its reply.
    pub(super) async fn send<T: FromRedisValue>(&mut self, command: &Cmd, limit: Duration) -> RedisResult<T> {
        match self {
            Self::Server(connection) => within(limit, command.query_async(connection)).await,
            Self::Cluster(connection) => within(limit, command.query_async(connection)).await,
        }
    }
}

/// Opens a connection to this server.
pub(super) async fn connect(server: ConnectionInfo) -> RedisResult<MultiplexedConnection> {
    // The caller has a timeout for both.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    Client::open(server)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The reply to this call, or an error after `limit`.
pub(super) async fn within<T>(limit: Duration, call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let reply = timeout(limit, call).await;
    reply.unwrap_or_else(|_elapsed| Err(timed_out("no reply from Redis within the timeout")))
}
