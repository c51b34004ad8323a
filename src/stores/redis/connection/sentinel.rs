//! Finds the primary of a service by Redis Sentinel, as its guidelines for clients require:
//! <https://redis.io/docs/latest/develop/reference/sentinel-clients/>
//!
//! The client library's own `sentinel` module has timeouts that cannot be set, checks the role on another connection
//! than the one that it returns, and has one error for an unknown service, a primary that is down and a replica.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo, RedisError, RedisResult, Role};

use super::wire::{connect, within};
use crate::credentials::Login;
use crate::stores::redis::credentials::signed_in;
use crate::stores::redis::url::Service;

/// The sentinels of a service.
pub(super) struct Sentinels {
    service: Service,
    /// The login, the database and the TLS of the service's servers.
    server: ConnectionInfo,
    timeout: Duration,
}

/// Host and port.
type Address = (String, u16);

/// Why no primary was found.
#[derive(Default)]
struct Failures {
    /// Sentinels that do not know the service.
    unaware: usize,
    /// The last error of a sentinel.
    sentinel: Option<RedisError>,
    /// The last error of a server that a sentinel named.
    server: Option<RedisError>,
}

impl Sentinels {
    pub(super) fn new(service: Service, server: ConnectionInfo, timeout: Duration) -> Self {
        Self { service, server, timeout }
    }

    /// Opens a connection to the primary. All sentinels are asked concurrently, and each server that they name is tried
    /// once, so that a sentinel that is silent or names an old primary delays nothing.
    pub(super) async fn open(&self, login: Option<&Login>) -> RedisResult<MultiplexedConnection> {
        let mut asked: FuturesUnordered<_> =
            self.service.sentinels.iter().map(|sentinel| within(self.timeout, self.ask(sentinel))).collect();
        let mut opened = FuturesUnordered::new();
        let mut named = HashSet::new();
        let mut failures = Failures::default();
        loop {
            tokio::select! {
                Some(answer) = asked.next() => match answer {
                    Ok(Some(address)) if named.insert(address.clone()) => {
                        opened.push(within(self.timeout, self.open_primary(address, login)));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => failures.unaware += 1,
                    Err(error) => failures.sentinel = Some(error),
                },
                Some(outcome) = opened.next() => match outcome {
                    Ok(connection) => return Ok(connection),
                    Err(error) => failures.server = Some(error),
                },
                else => return Err(self.explain(failures)),
            }
        }
    }

    /// The address of the primary, if this sentinel knows the service.
    async fn ask(&self, sentinel: &ConnectionInfo) -> RedisResult<Option<Address>> {
        let mut connection = connect(sentinel.clone()).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service.name);
        command.query_async(&mut connection).await
    }

    /// Opens a connection to this server, if it is a primary by its own account. A sentinel may not know yet that it
    /// was demoted.
    async fn open_primary(&self, address: Address, login: Option<&Login>) -> RedisResult<MultiplexedConnection> {
        let server = signed_in(self.server.clone().set_addr(self.at(&address)), login);
        let mut connection = connect(server).await?;
        let role = redis::cmd("ROLE").query_async(&mut connection).await?;
        if matches!(role, Role::Primary { .. }) {
            return Ok(connection);
        }
        let (host, port) = address;
        let why = format!("the sentinels name {host}:{port}, which is not a primary: is a failover under way?");
        Err(io::Error::other(why).into())
    }

    fn at(&self, (host, port): &Address) -> ConnectionAddr {
        match self.server.addr() {
            ConnectionAddr::TcpTls { .. } => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
            ConnectionAddr::Tcp(..) | ConnectionAddr::Unix(_) | _ => ConnectionAddr::Tcp(host.clone(), *port),
        }
    }

    /// The error that shows what to do. That of a server is kept as it is: it may be a rejected login.
    fn explain(&self, Failures { unaware, sentinel, server }: Failures) -> RedisError {
        let (name, all) = (&self.service.name, self.service.sentinels.len());
        let why = match (server, sentinel) {
            (Some(error), _) => return error,
            (None, Some(error)) if unaware == 0 => format!("none of {all} sentinels replied: {error}"),
            (None, Some(error)) => format!("no sentinel knows the service {name}, and some did not reply: {error}"),
            (None, None) => format!("no sentinel knows the service {name}: check its name in REDIS_URL"),
        };
        io::Error::other(why).into()
    }
}
