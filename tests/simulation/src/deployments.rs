//! Deployments of Redis that a seed describes: a server, a cluster, or a service of sentinels, with a login, a
//! database, TLS and a configuration. The URL of each is written from these parts. A store with it must connect to the
//! right server in the right way, say why it cannot, and find what is unsafe in the configuration. There are no faults.
//!
//! - `address`: writes the URL
//! - `configuration`: writes the reply to INFO
//! - `verdict`: what is wrong with the client

mod address;
mod configuration;
mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use harness::lines;
use history::Rng;
use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};
use idempotent_sqs::idempotency::{AcquireRequest, Store, error_chain};
use idempotent_sqs::{Key, RedisSettings, RedisStore};
use tokio::time::sleep;

use crate::connections::connections;
use crate::network::address as host_of;
use crate::redis::{Cluster, Known, Sentinel, Server};
use address::Address;
pub use address::{encoded, secret};
use configuration::Configuration;

/// Number of deployments of a seed.
const DEPLOYMENTS: u64 = 4;

const TIMEOUT: Duration = Duration::from_millis(300);

const NAMESPACE: &str = "deployed";

/// Number of calls of each client.
const CALLS: usize = 8;

/// Default ports: <https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/>.
const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// What a source of credentials advises.
const ADVICE: &str = "check the login of the simulation";

/// What a sentinel does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SentinelState {
    /// It names the primary after the last failover.
    Current,
    /// It names the one before.
    Outdated,
    /// It names the one before, and then the one after.
    Switching,
    /// It does not know the service.
    Unaware,
    Silent,
    Refuses,
}

/// A deployment and a client of its own.
#[derive(Debug)]
struct Deployment {
    client: String,
    address: Address,
    kind: Kind,
    /// The login of a source of credentials, which the URL does not have.
    source: Option<Login>,
    /// Whether the servers require another password.
    rejects: bool,
    /// Whether they refuse INFO.
    refuses_info: bool,
    configurations: Vec<Configuration>,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Server,
    Cluster,
    /// A node of a cluster, whose client does not use the protocol of clusters.
    Node,
    Sentinels(Vec<SentinelState>),
}

/// Connects to the deployments of this seed. Returns what is wrong.
pub async fn deploy(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0xde91);
    let mut wrong = Vec::new();
    for number in 0..DEPLOYMENTS {
        let deployment = Deployment::of(number, rng);
        lines::take();
        let faults = deployment.run(rng).await;
        wrong.extend(faults.into_iter().map(|fault| format!("{fault}: {deployment:?}")));
    }
    lines::take();
    wrong
}

impl Deployment {
    fn of(number: u64, rng: &mut Rng) -> Self {
        use SentinelState::{Current, Outdated, Refuses, Silent, Switching, Unaware};
        let client = format!("client{number}");
        let kind = match rng.draw(0..6) {
            0 | 1 => Kind::Server,
            2 => Kind::Cluster,
            3 if rng.happens(300) => Kind::Node,
            _ => {
                let states = [Current, Current, Current, Outdated, Switching, Unaware, Silent, Refuses];
                Kind::Sentinels((0..rng.draw(1..4)).map(|_| *rng.pick(&states)).collect())
            }
        };
        let (is_cluster, by_sentinel) =
            (matches!(kind, Kind::Cluster | Kind::Node), matches!(kind, Kind::Sentinels(_)));
        let hosts = match &kind {
            Kind::Sentinels(states) => (0..states.len()).map(|at| format!("sentinel{number}{at}")).collect(),
            _ => vec![format!("deployed{number}0")],
        };
        let mut port = || rng.happens(500).then_some(if is_cluster { SERVER_PORT } else { 7000 });
        let hosts = hosts.into_iter().map(|name| (host_of(&name, &client), port())).collect();
        let (has_user, has_password) = (rng.happens(400), rng.happens(500));
        let source =
            rng.happens(250).then(|| Login { user: rng.happens(500).then(|| secret(rng)), password: secret(rng) });
        let address = Address {
            tls: rng.happens(300),
            user: has_user.then(|| secret(rng)),
            password: (has_password && source.is_none()).then(|| secret(rng)),
            hosts,
            service: by_sentinel.then(|| (*rng.pick(&["mymaster", "pay.ments_1", "2"])).to_owned()),
            database: (!is_cluster && rng.happens(400)).then(|| *rng.pick(&[0, 1, 15])),
            sentinel_login: (by_sentinel && rng.happens(400)).then(|| [secret(rng), secret(rng)]),
        };
        let servers = if kind == Kind::Server { 1 } else { 2 };
        let is_replica = rng.happens(150) && !is_cluster;
        let configurations = (0..servers).map(|at| Configuration::of(rng, is_replica && at == 0)).collect();
        let (rejects, refuses_info) = (rng.happens(120), rng.happens(150));
        Self { client, address, kind, source, rejects, refuses_info, configurations }
    }

    /// The login that a connection to a server must have.
    fn login(&self) -> Option<Login> {
        let of_url = self
            .address
            .password
            .as_ref()
            .map(|password| Login { user: self.address.user.clone(), password: password.clone() });
        self.source.clone().or(of_url)
    }

    fn name(&self, server: usize) -> String {
        format!("deployed{}{server}", &self.client["client".len()..])
    }

    async fn run(&self, rng: &mut Rng) -> Vec<String> {
        let url = self.address.url(rng);
        let url = match url.parse() {
            Ok(url) => url,
            Err(error) => return vec![format!("{url} is not valid: {error}")],
        };
        let mut wrong = self.address.wrong_parts(&url);
        wrong.extend(self.address.wrong_errors(rng));
        let servers = self.start();
        let mut settings = RedisSettings::new(url, NAMESPACE);
        (settings.cluster, settings.timeout) = (self.kind == Kind::Cluster, TIMEOUT);
        settings.credentials = self.source.clone().map(|login| Arc::new(Source(login)) as _);
        let store = RedisStore::new(&settings).expect("these settings are valid");
        settings.cluster = true;
        if RedisStore::new(&settings).is_ok() == self.address.service.is_some() {
            wrong.push("a client of a cluster, which sentinels do not know".to_owned());
        }
        let mut error = None;
        // Keys of both nodes of a cluster.
        for number in 0..CALLS {
            let key = Key::new(&format!("key{number}")).expect("it has a text");
            error = store.acquire(AcquireRequest::new(key)).await.err().map(|error| error_chain(&error));
        }
        // Until INFO is answered.
        sleep(TIMEOUT).await;
        wrong.extend(self.wrong_outcome(error.as_deref()));
        wrong.extend(self.wrong_findings(store.findings(), error.is_none()));
        let used = |server: &Server| !server.keys(|key| key.starts_with(b"deployed:key")).is_empty();
        let stored: Vec<_> = servers.servers.iter().map(used).collect();
        let expected = match (&self.kind, error.is_none()) {
            (_, false) | (Kind::Node, true) => None,
            (Kind::Cluster, true) => Some(vec![true, true]),
            (_, true) if self.is_certain() => Some((0..stored.len()).map(|at| Some(at) == self.primary()).collect()),
            (_, true) => None,
        };
        if expected.as_ref().is_some_and(|expected| *expected != stored) {
            wrong.push(format!("servers with records: {stored:?}, not {expected:?}"));
        }
        let own: Vec<_> = connections().into_iter().filter(|made| made.client == self.client).collect();
        wrong.extend(own.iter().flat_map(|made| self.wrong_connection(made)));
        wrong.extend(self.wrong_repetition(&own));
        wrong
    }

    /// Starts the servers and the sentinels.
    fn start(&self) -> Cluster {
        let names: Vec<_> = (0..self.configurations.len()).map(|server| self.name(server)).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let cluster = match self.kind {
            Kind::Cluster | Kind::Node => Cluster::start(&names),
            Kind::Server | Kind::Sentinels(_) => Cluster::of(names.iter().map(|name| Server::start(name)).collect()),
        };
        for (server, configuration) in cluster.servers.iter().zip(&self.configurations) {
            if let Some(Login { user, password }) = self.login().filter(|_| !self.rejects) {
                server.require_login(user, password);
            } else if self.rejects {
                server.require_login(None, "another".to_owned());
            }
            let refused = "NOPERM User default has no permissions to run the 'info' command".to_owned();
            server.set_info(if self.refuses_info { Err(refused) } else { Ok(configuration.info()) });
            server.set_replica(configuration.is_replica);
        }
        let Kind::Sentinels(states) = &self.kind else { return cluster };
        let service = self.address.service.clone().unwrap_or_default();
        for ((host, _), state) in self.address.hosts.iter().zip(states) {
            let (name, _client) = host.split_once('.').expect("it is an address of the simulated network");
            let known = |epoch, server| {
                let primary = (host_of(&self.name(server), &self.client), SERVER_PORT + 1);
                Known { epoch, primary }
            };
            let [before, after] = [known(9, 1), known(10, 0)];
            let mut services =
                BTreeMap::from([("other".to_owned(), Known { epoch: 99, primary: ("nowhere".to_owned(), 1) })]);
            if *state != SentinelState::Unaware {
                let is_current = *state == SentinelState::Current;
                services.insert(service.clone(), if is_current { &after } else { &before }.clone());
            }
            let later = (*state == SentinelState::Switching).then_some(after);
            let login = self.address.sentinel_login.clone();
            if *state != SentinelState::Refuses {
                Sentinel { login, services, later, replies: *state != SentinelState::Silent }.start(name);
            }
        }
        cluster
    }

    fn count(&self, state: SentinelState) -> usize {
        let Kind::Sentinels(states) = &self.kind else { return 0 };
        states.iter().filter(|other| **other == state).count()
    }

    /// Sentinels that name the primary before the last failover when they are asked.
    fn outdated(&self) -> usize {
        self.count(SentinelState::Outdated) + self.count(SentinelState::Switching)
    }

    /// Whether the primary does not depend on which sentinels reply first: each majority has one that is current, or
    /// all are asked.
    fn is_certain(&self) -> bool {
        let Kind::Sentinels(states) = &self.kind else { return true };
        let (current, outdated) = (self.count(SentinelState::Current), self.outdated());
        current == 0 || outdated <= states.len() / 2
    }

    /// The number of the server that the client must connect to. `None` if no sentinel names one.
    fn primary(&self) -> Option<usize> {
        match &self.kind {
            Kind::Sentinels(_) if self.count(SentinelState::Current) > 0 => Some(0),
            Kind::Sentinels(_) => (self.outdated() > 0).then_some(1),
            Kind::Server | Kind::Cluster | Kind::Node => Some(0),
        }
    }
}

/// A source with one login.
#[derive(Debug)]
struct Source(Login);

impl CredentialsSource for Source {
    fn login<'a>(&'a self, _rejected: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async { Ok(self.0.clone()) })
    }

    fn advice(&self) -> &'static str {
        ADVICE
    }
}
