//! Whether the client of a deployment connected as its URL says, failed with the right error, and found what is unsafe.

use std::collections::BTreeSet;

use harness::lines;
use idempotent_sqs::credentials::Login;
use redis::ConnectionAddr;

use super::{ADVICE, CALLS, Deployment, Kind, SENTINEL_PORT, SERVER_PORT, SentinelState};
use crate::connections::Connection;
use crate::network::address as host_of;

impl Deployment {
    /// A part of the error, if calls must fail.
    fn expected_error(&self) -> Option<String> {
        let is_replica = self.primary().is_some_and(|server| self.configurations[server].is_replica);
        let by_sentinel = matches!(self.kind, Kind::Sentinels(_));
        let silent = self.count(SentinelState::Silent) + self.count(SentinelState::Refuses);
        let service = self.address.service.as_deref().unwrap_or_default();
        match self.primary() {
            None if self.count(SentinelState::Unaware) == 0 => Some(format!("none of {silent} sentinels replied")),
            None if silent == 0 => Some(format!("no sentinel knows the service {service}: check its name")),
            None => Some(format!("no sentinel knows the service {service}, and some did not reply")),
            Some(_) if self.rejects && self.source.is_some() => Some(ADVICE.to_owned()),
            Some(_) if self.rejects => Some("Redis rejected the user and password of REDIS_URL".to_owned()),
            Some(_) if self.kind == Kind::Node => Some("set REDIS_CLUSTER=true".to_owned()),
            Some(_) if is_replica && by_sentinel => Some("which is not a primary: is a failover under way?".to_owned()),
            Some(_) if is_replica => Some("You can't write against a read only replica".to_owned()),
            Some(_) => None,
        }
    }

    pub(super) fn wrong_outcome(&self, error: Option<&str>) -> Option<String> {
        if !self.is_certain() {
            return None;
        }
        let expected = self.expected_error();
        let is_expected = match (&expected, error) {
            (None, None) => true,
            (Some(expected), Some(error)) => error.contains(expected),
            // The node serves the keys of its own slots.
            (Some(_), None) => self.kind == Kind::Node,
            (None, Some(_)) => false,
        };
        (!is_expected).then(|| format!("the last call ended with {error:?}, not {expected:?}"))
    }

    pub(super) fn wrong_findings(&self, count: Option<u64>, is_open: bool) -> Option<String> {
        let by_sentinel = matches!(self.kind, Kind::Sentinels(_));
        if !self.is_certain() || by_sentinel && !is_open {
            return None;
        }
        let logged: Vec<_> = lines::take()
            .into_iter()
            .filter(|line| line.get("message") == Some("unsafe Redis configuration"))
            .filter_map(|line| line.get("finding").map(str::to_owned))
            .collect();
        let checked = match &self.kind {
            Kind::Cluster => &self.configurations[..],
            Kind::Server | Kind::Node => &self.configurations[..1],
            Kind::Sentinels(_) => self.primary().map_or(&[][..], |server| &self.configurations[server..=server]),
        };
        let expected: BTreeSet<_> =
            checked.iter().flat_map(|configuration| configuration.findings(by_sentinel)).collect();
        let is_right = if !self.rejects && !self.refuses_info {
            let is_logged = |part: &String| logged.iter().filter(|finding| finding.contains(part)).count() == 1;
            logged.len() == expected.len() && expected.iter().all(is_logged) && count == Some(expected.len() as u64)
        } else {
            logged.is_empty() && count.is_none()
        };
        (!is_right).then(|| format!("{count:?} findings {logged:?}, not {expected:?}"))
    }

    /// More connections with a rejected login than the two tries of each call: the source has no other login.
    pub(super) fn wrong_repetition(&self, made: &[Connection]) -> Option<String> {
        let is_rejected =
            |made: &&Connection| made.exchanges.iter().any(|sent| sent.command == "AUTH" && sent.error.is_some());
        let rejected = made.iter().filter(is_rejected).count();
        let is_wrong = self.source.is_some() && rejected > 2 * CALLS;
        is_wrong.then(|| format!("{rejected} connections with a rejected login for {CALLS} calls"))
    }

    /// What is wrong with a connection: its address, its TLS, its login or its database.
    pub(super) fn wrong_connection(&self, made: &Connection) -> Vec<String> {
        let (host, port, tls) = match &made.address {
            ConnectionAddr::Tcp(host, port) => (host, *port, false),
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None } => (host, *port, true),
            other => return vec![format!("connected to {other:?}")],
        };
        let mut wrong = Vec::new();
        let to_sentinel = host.starts_with("sentinel");
        let own = self.address.hosts.iter().find(|(own, _)| own == host);
        let default = if self.address.service.is_some() { SENTINEL_PORT } else { SERVER_PORT };
        let expected = match own {
            Some((_, port)) => port.unwrap_or(default),
            None if self.address.service.is_some() => SERVER_PORT + 1,
            None => SERVER_PORT,
        };
        if port != expected || tls != self.address.tls {
            wrong.push(format!("{host}:{port} with TLS {tls}, not port {expected}"));
        }
        let of = |name: &str| -> Vec<_> {
            made.exchanges.iter().filter(|sent| sent.command == name).map(|sent| sent.arguments.clone()).collect()
        };
        let login = if to_sentinel {
            self.address.sentinel_login.clone().map(|[user, password]| Login { user: Some(user), password })
        } else {
            self.login()
        };
        let expected = login.map(|Login { user, password }| match user {
            Some(user) => vec![user, password],
            // The source of credentials names the default user.
            None if self.source.is_some() => vec!["default".to_owned(), password],
            None => vec![password],
        });
        let logins = of("AUTH");
        if made.is_open && logins != Vec::from_iter(expected.clone()) {
            wrong.push(format!("{host}: the logins {logins:?}, not {expected:?}"));
        }
        let database = self.address.database.filter(|number| *number > 0 && !to_sentinel);
        let is_used = made.exchanges.iter().any(|sent| sent.command.starts_with("EVAL"));
        if is_used && of("SELECT") != Vec::from_iter(database.map(|number| vec![number.to_string()])) {
            wrong.push(format!("{host}: the databases {:?}, not {database:?}", of("SELECT")));
        }
        let is_replica = self.configurations.iter().enumerate().any(|(server, configuration)| {
            configuration.is_replica && *host == host_of(&self.name(server), &self.client)
        });
        if is_used && is_replica && self.address.service.is_some() {
            wrong.push(format!("{host}: a replica was called"));
        }
        wrong
    }
}
