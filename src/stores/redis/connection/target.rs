//! What to connect to: a server, the primary that sentinels name, or a cluster.

use std::sync::Arc;

use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::io::tcp::TcpSettings;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult};
use rustls::crypto::{CryptoProvider, aws_lc_rs};

use super::sentinel::Sentinels;
use super::wire::{Node, Wire, connect};
use crate::credentials::Login;
use crate::stores::redis::credentials::{ClusterLogins, signed_in};
use crate::stores::redis::{RedisSettings, RedisSettingsError, RedisUrl};

/// Redirections that the cluster client follows within one try.
const REDIRECTIONS: u32 = 3;

/// The server, the sentinels or the cluster to connect to.
pub(super) enum Target {
    Server(Box<ConnectionInfo>),
    Sentinel(Box<Sentinels>),
    Cluster(Box<ClusterClient>, Option<ClusterLogins>),
}

impl Target {
    pub(super) fn new(settings: &RedisSettings) -> Result<Self, RedisSettingsError> {
        if settings.url.uses_tls() {
            choose_cryptography();
        }
        let RedisUrl { server, service } = settings.url.clone();
        // Disables Nagle's algorithm, which would delay a call until the previous one is acknowledged.
        let tcp = TcpSettings::default().set_nodelay(true);
        let server = server.set_tcp_settings(tcp.clone());
        match (service, settings.cluster) {
            (None, false) => Ok(Self::Server(Box::new(server))),
            (Some(service), false) => Ok(Self::Sentinel(Box::new(Sentinels::new(service, server, settings.timeout)))),
            (None, true) => {
                let logins = settings.credentials.clone().map(ClusterLogins::new);
                Ok(Self::Cluster(Box::new(cluster(server, tcp, settings, logins.clone())?), logins))
            }
            (Some(_), true) => {
                let why = "sentinels do not know clusters: turn the cluster protocol off";
                Err(RedisError::from((ErrorKind::InvalidClientConfig, why)).into())
            }
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        match self {
            Self::Server(_) | Self::Sentinel(_) => false,
            Self::Cluster(..) => true,
        }
    }

    /// Connections that are opened one after another: to the sentinels and then to the primary, or to the first node of
    /// a cluster and then to all nodes concurrently.
    pub(super) fn round_trips(&self) -> u32 {
        match self {
            Self::Server(_) => 1,
            Self::Sentinel(_) | Self::Cluster(..) => 2,
        }
    }

    /// Opens a connection.
    pub(super) async fn open(&self, login: Option<&Login>) -> RedisResult<Wire> {
        match self {
            Self::Server(server) => connect(signed_in((**server).clone(), login)).await.map(Wire::Server),
            Self::Sentinel(sentinels) => sentinels.open(login).await.map(Wire::Server),
            Self::Cluster(client, logins) => {
                // Kept until all nodes are connected.
                let login = login.cloned().map(Arc::new);
                if let (Some(logins), Some(login)) = (logins, &login) {
                    logins.give(login);
                }
                client.get_async_generic_connection::<Node>().await.map(Wire::Cluster)
            }
        }
    }
}

/// Chooses the cryptography of TLS for the process, unless the program has chosen one. The client library uses the
/// choice of the process, and panics if there is none and other crates have compiled in several.
fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have chosen meanwhile.
        let _chosen = aws_lc_rs::default_provider().install_default();
    }
}

fn cluster(
    node: ConnectionInfo,
    tcp: TcpSettings,
    settings: &RedisSettings,
    logins: Option<ClusterLogins>,
) -> RedisResult<ClusterClient> {
    let mut cluster = ClusterClientBuilder::new([node]);
    if let Some(logins) = logins {
        cluster = cluster.set_credentials_provider(logins);
    }
    cluster
        .tcp_settings(tcp)
        .connection_timeout(settings.timeout)
        .response_timeout(settings.timeout)
        .retries(REDIRECTIONS)
        .min_retry_wait(10)
        .max_retry_wait(100)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_and_a_cluster_have_time_for_two_connections_one_after_another() {
        let round_trips = |url: &str, cluster| {
            let settings = RedisSettings { cluster, ..RedisSettings::new(url.parse().unwrap(), "payments") };
            Target::new(&settings).unwrap().round_trips()
        };
        assert_eq!(round_trips("redis://127.0.0.1", false), 1);
        assert_eq!(round_trips("redis://127.0.0.1", true), 2);
        assert_eq!(round_trips("redis+sentinel://127.0.0.1/mymaster", false), 2);
    }
}
