//! Opens connections and sends commands.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult};
use tokio::time::timeout;

use super::errors::timed_out;
use crate::credentials::Login;
use crate::stores::redis::credentials::{ClusterLogins, signed_in};
use crate::stores::redis::{RedisSettings, RedisSettingsError, RedisUrl};

/// Redirections that the cluster client follows within one try.
const REDIRECTIONS: u32 = 3;

/// The server or cluster to connect to.
pub(super) enum Target {
    Server(Box<Client>),
    Cluster(Box<ClusterClient>),
}

/// An open connection.
#[derive(Clone)]
pub(super) enum Wire {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Target {
    pub(super) fn new(settings: &RedisSettings) -> Result<Self, RedisSettingsError> {
        // Disables Nagle's algorithm, which would delay a call until the previous one is acknowledged.
        let tcp = TcpSettings::default().set_nodelay(true);
        let RedisUrl(info) = settings.url.clone();
        if !settings.cluster {
            return Ok(Self::Server(Box::new(Client::open(info.set_tcp_settings(tcp))?)));
        }
        let mut cluster = ClusterClientBuilder::new([info]);
        if let Some(source) = &settings.credentials {
            cluster = cluster.set_credentials_provider(ClusterLogins(Arc::clone(source)));
        }
        let client = cluster
            .tcp_settings(tcp)
            .connection_timeout(settings.timeout)
            .response_timeout(settings.timeout)
            .retries(REDIRECTIONS)
            .min_retry_wait(10)
            .max_retry_wait(100)
            .build()?;
        Ok(Self::Cluster(Box::new(client)))
    }

    /// Connections that are opened one after another: to the first node of a cluster, then to all nodes concurrently.
    pub(super) fn round_trips(&self) -> u32 {
        match self {
            Self::Server(_) => 1,
            Self::Cluster(_) => 2,
        }
    }

    /// Opens a connection.
    pub(super) async fn open(&self, login: Option<&Login>) -> RedisResult<Wire> {
        match self {
            Self::Server(client) => {
                let server = client.get_connection_info().clone();
                let client = Client::open(match login {
                    Some(login) => signed_in(server, login),
                    None => server,
                })?;
                // The caller has a timeout for both.
                let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
                client.get_multiplexed_async_connection_with_config(&config).await.map(Wire::Server)
            }
            // The cluster client requests a login for each node's connection.
            Self::Cluster(client) => client.get_async_connection().await.map(Wire::Cluster),
        }
    }
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

/// The reply to this call, or an error after `limit`.
pub(super) async fn within<T>(limit: Duration, call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let reply = timeout(limit, call).await;
    reply.unwrap_or_else(|_elapsed| Err(timed_out("no reply from Redis within the timeout")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_time_for_its_first_node_and_then_for_all() {
        let round_trips = |cluster| {
            let url = "redis://127.0.0.1".parse().unwrap();
            let settings = RedisSettings { cluster, ..RedisSettings::new(url, "payments") };
            Target::new(&settings).unwrap().round_trips()
        };
        assert_eq!((round_trips(false), round_trips(true)), (1, 2));
    }
}
