//! A primary, two replicas, and three sentinels that watch them, whose links can be cut.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{Deployment, LAGS, Link, Links, Listeners, OPTIONS, SERVERS};
use crate::redis::Redis;
use crate::sentinel::{self, Sentinel, is_synchronized};
use crate::until;

/// The servers of a service. The first one is the primary until a failover.
pub struct Service {
    pub servers: Vec<Redis>,
    pub links: Vec<Links>,
    pub sentinels: Vec<(Sentinel, Links)>,
    /// Whether the first sentinel is cut off from the servers and the others.
    is_one_isolated: bool,
}

/// The address from which the first sentinel opens connections.
const FIRST_SENTINEL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 20);

/// How much later than the first sentinel the others reply to clients while it is isolated.
const LATER: Duration = Duration::from_millis(30);

impl Service {
    /// All servers have these additional options.
    pub async fn start(options: &[&str]) -> Self {
        let (mut servers, mut links): (Vec<Redis>, Vec<Links>) = (Vec::new(), Vec::new());
        for number in 0..3 {
            let listeners = Listeners::bind().await;
            let (port, first) = (listeners.port.to_string(), links.first().map(|first| first.port.to_string()));
            let announced = ["--replica-announce-ip", SERVERS, "--replica-announce-port", &port];
            let follows: Vec<&str> = first.iter().flat_map(|first| ["--replicaof", SERVERS, first]).collect();
            let server = Redis::start_with(&[&announced[..], &OPTIONS[..], options, &follows].concat()).await;
            if number > 0 {
                is_synchronized(&server).await;
            }
            links.push(listeners.to(server.port()));
            servers.push(server);
        }
        let mut sentinels = Vec::new();
        for number in 0..3 {
            let listeners = Listeners::bind().await;
            let announced = format!("sentinel announce-ip {SERVERS}\nsentinel announce-port {}", listeners.port);
            let source = if number == 0 { format!("\nbind-source-addr {FIRST_SENTINEL}") } else { String::new() };
            let sentinel = Sentinel::watch_port(links[0].port, 2, &format!("{announced}{source}")).await;
            let links = listeners.to(sentinel.port());
            sentinels.push((sentinel, links));
        }
        for (sentinel, _) in &sentinels {
            until(|| async move { sentinel.has_quorum().await && sentinel.usable_replicas().await == 2 }).await;
        }
        for links in &links {
            links.servers.delay(LAGS);
        }
        Self { servers, links, sentinels, is_one_isolated: false }
    }

    /// Cuts the first sentinel off from the servers and the other sentinels. Clients reach it, and it replies before
    /// the others.
    pub fn isolate_a_sentinel(&mut self) {
        self.is_one_isolated = true;
        self.sentinels[0].1.servers.cut();
        let others = || self.sentinels[1..].iter().map(|(_, links)| links);
        self.links.iter().chain(others()).for_each(|links| links.servers.cut_from(FIRST_SENTINEL));
        others().flat_map(|links| [&links.near, &links.far]).for_each(|link| link.delay(LATER));
    }

    /// The URL of the service for the clients of the side with this address.
    pub fn url(&self, side: &str) -> String {
        let ports: Vec<_> = self.sentinels.iter().map(|(_, links)| links.port).collect();
        sentinel::url(&ports).replace(SERVERS, side)
    }
}

impl Deployment for Service {
    fn first(&mut self) -> &mut Redis {
        &mut self.servers[0]
    }

    fn links(&self) -> &[Links] {
        &self.links
    }

    fn links_to_first(&self) -> Vec<&Link> {
        self.links[0].all().to_vec()
    }

    fn partition(&self) {
        [&self.links[0].servers, &self.links[0].far].into_iter().for_each(Link::cut);
        let others = self.links[1..].iter().chain(self.sentinels.iter().map(|(_, links)| links));
        others.for_each(|links| links.near.cut());
    }

    fn heal(&self) {
        let all = self.links.iter().chain(self.sentinels.iter().map(|(_, links)| links));
        all.flat_map(Links::all).for_each(Link::heal);
    }

    async fn promoted(&self) -> usize {
        let mut promoted = None;
        for (sentinel, _) in self.sentinels.iter().skip(usize::from(self.is_one_isolated)) {
            until(|| async { sentinel.primary().await != Some(self.links[0].port) }).await;
            promoted = sentinel.primary().await;
        }
        self.links.iter().position(|links| Some(links.port) == promoted).unwrap()
    }
}
