//! Finds the primary of a service by Redis Sentinel, as its guidelines for clients require:
//! <https://redis.io/docs/latest/develop/reference/sentinel-clients/>
//!
//! The client library's own `sentinel` module has timeouts that cannot be set, checks the role on another connection
//! than the one that it returns, and has one error for an unknown service, a primary that is down and a replica.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::{ConnectionAddr, ConnectionInfo, RedisError, RedisResult, Role};

use super::wire::{Node, connect, within};
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

/// What a sentinel knows of the service.
struct Configuration {
    /// The number of the failover that this configuration results from.
    epoch: u64,
    primary: Address,
}

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

    /// Opens a connection to the primary. All sentinels are asked concurrently, until a majority has named one. The
    /// newest configuration applies: a sentinel that was cut off from the others still names an old primary.
    pub(super) async fn open(&self, login: Option<&Login>) -> RedisResult<Node> {
        let mut asked: FuturesUnordered<_> =
            self.service.sentinels.iter().map(|sentinel| within(self.timeout, self.ask(sentinel))).collect();
        let mut known: Vec<Configuration> = Vec::new();
        let mut failures = Failures::default();
        while known.len() <= self.service.sentinels.len() / 2
            && let Some(answer) = asked.next().await
        {
            match answer {
                Ok(Some(configuration)) => known.push(configuration),
                Ok(None) => failures.unaware += 1,
                Err(error) => failures.sentinel = Some(error),
            }
        }
        let newest = known.iter().map(|configuration| configuration.epoch).max();
        let named = known.into_iter().filter(|configuration| Some(configuration.epoch) == newest);
        // One, unless the sentinels were set up differently.
        let primaries: HashSet<Address> = named.map(|configuration| configuration.primary).collect();
        let mut opened: FuturesUnordered<_> =
            primaries.into_iter().map(|primary| within(self.timeout, self.open_primary(primary, login))).collect();
        while let Some(outcome) = opened.next().await {
            match outcome {
                Ok(connection) => return Ok(connection),
                Err(error) => failures.server = Some(error),
            }
        }
        Err(self.explain(failures))
    }

    /// The configuration of this sentinel, if it knows the service.
    async fn ask(&self, sentinel: &ConnectionInfo) -> RedisResult<Option<Configuration>> {
        let mut connection = connect(sentinel.clone()).await?;
        // During a failover, the first command names the new primary as soon as it is promoted, and MASTER has its
        // epoch. A sentinel that reads both commands at once executes them without a failover in between.
        let mut request = redis::pipe();
        for command in ["GET-MASTER-ADDR-BY-NAME", "MASTER"] {
            request.cmd("SENTINEL").arg(command).arg(&self.service.name);
        }
        let (primary, fields): (RedisResult<Option<Address>>, RedisResult<HashMap<String, String>>) =
            request.ignore_errors().query_async(&mut connection).await?;
        let Some(primary) = primary? else { return Ok(None) };
        let epoch = fields?.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or_default();
        Ok(Some(Configuration { epoch, primary }))
    }

    /// Opens a connection to this server, if it is a primary by its own account. A sentinel may not know yet that it
    /// was demoted.
    async fn open_primary(&self, address: Address, login: Option<&Login>) -> RedisResult<Node> {
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
