//! Servers whose links can be cut: each is reached only through proxies, as it announces their port to the others.
//!
//! - `service`: a primary, two replicas and three sentinels
//! - `shards`: a cluster of three primaries with a replica each
//!
//! An address of loopback stands for each party: servers and sentinels use [`SERVERS`], and clients one of [`SIDES`],
//! with the same ports. The proxies replace the address in the replies to clients. Linux has all of these addresses.

pub mod service;
pub mod shards;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::front::replace;
use crate::redis::Redis;

/// The address by which servers and sentinels reach each other.
pub const SERVERS: &str = "127.0.0.1";

/// The addresses by which the clients of each side reach servers and sentinels. A fault may leave a server to the
/// clients of the near side alone.
pub const SIDES: [&str; 2] = [NEAR, FAR];
pub const NEAR: &str = "127.0.0.2";
pub const FAR: &str = "127.0.0.3";

/// How long each chunk of the writes of a primary takes to reach its replicas.
const LAGS: Duration = Duration::from_millis(50);

/// Each write is passed to the append-only file before its reply is sent; by `everysec` it may be passed later. A
/// replica is synchronized at once.
const OPTIONS: [&str; 6] = ["--appendonly", "yes", "--appendfsync", "no", "--repl-diskless-sync-delay", "0"];

/// A proxy at one address of one port of a server.
pub struct Link {
    cut: watch::Sender<Cut>,
    delay: watch::Sender<Duration>,
    _running: JoinSet<()>,
}

/// A deployment of Redis, whose first server is a primary until a fault.
pub trait Deployment {
    fn first(&mut self) -> &mut Redis;

    /// The links to each server.
    fn links(&self) -> &[Links];

    /// The links to the first server.
    fn links_to_first(&self) -> Vec<&Link>;

    /// Cuts the first server off from all but the clients of the near side, which reach nothing else.
    fn partition(&self);

    /// Cuts this server off from all clients.
    fn hide(&self, server: usize) {
        let Links { near, far, .. } = &self.links()[server];
        [near, far].into_iter().for_each(Link::cut);
    }

    /// Connects all again.
    fn heal(&self);

    /// Waits until another server is the primary, for all sentinels or by its own account. Returns its number.
    fn promoted(&self) -> impl Future<Output = usize>;

    /// Ends the host of the first server. What it has sent is lost unless it has arrived.
    fn lose_host(&mut self) {
        self.links_to_first().into_iter().for_each(Link::cut);
        self.first().kill();
    }
}

/// The connections that forward nothing. Bytes sent to them wait, as in a network that sends lost packets again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    None,
    All,
    From(IpAddr),
}

impl Cut {
    fn is_of(self, peer: IpAddr) -> bool {
        self == Self::All || self == Self::From(peer)
    }
}

impl Link {
    fn start(listener: TcpListener, server: u16) -> Self {
        let (cut, delay) = (watch::Sender::new(Cut::None), watch::Sender::new(Duration::ZERO));
        let (is_cut, delays) = (cut.subscribe(), delay.subscribe());
        let mut running = JoinSet::new();
        running.spawn(async move {
            let address = listener.local_addr().unwrap().ip().to_string();
            let mut connections = JoinSet::new();
            while let Ok((near, peer)) = listener.accept().await {
                let (address, mut is_cut, delays) = (address.clone(), is_cut.clone(), delays.clone());
                connections.spawn(async move {
                    if is_cut.wait_for(|cut| !cut.is_of(peer.ip())).await.is_err() {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect((SERVERS, server)).await else { return };
                    let mut near = near;
                    let ((from_near, to_near), (from_far, to_far)) = (near.split(), far.split());
                    let requests = pass(from_near, to_far, peer.ip(), is_cut.clone(), None, "");
                    let replies = pass(from_far, to_near, peer.ip(), is_cut, Some(delays), &address);
                    tokio::join!(requests, replies);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { cut, delay, _running: running }
    }

    /// Forwards nothing, until [`heal`](Self::heal).
    fn cut(&self) {
        self.cut.send_replace(Cut::All);
    }

    /// Forwards nothing to or from connections of this address.
    fn cut_from(&self, address: Ipv4Addr) {
        self.cut.send_replace(Cut::From(address.into()));
    }

    fn heal(&self) {
        self.cut.send_replace(Cut::None);
    }

    /// Delays further replies by this time.
    fn delay(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }
}

/// Forwards what is read. Replaces the address of the servers by `address`, if it has one.
async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    peer: IpAddr,
    mut is_cut: watch::Receiver<Cut>,
    delays: Option<watch::Receiver<Duration>>,
    address: &str,
) {
    let mut chunk = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        let delay = delays.as_ref().map_or(Duration::ZERO, |delays| *delays.borrow());
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if is_cut.wait_for(|cut| !cut.is_of(peer)).await.is_err() {
            return;
        }
        let bytes = &mut chunk[..length];
        if address.len() == SERVERS.len() {
            replace(bytes, SERVERS.as_bytes(), address.as_bytes());
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
    // What the other side has sent still arrives.
    let _ = to.shutdown().await;
}

/// The links to one port of a server. They have the same port, at the address of the servers and at those of both
/// sides.
pub struct Links {
    pub port: u16,
    /// For servers and sentinels.
    pub servers: Link,
    /// For the clients of each side.
    pub near: Link,
    pub far: Link,
}

/// Listeners on one free port at all three addresses, before their server is known.
struct Listeners {
    port: u16,
    at: [TcpListener; 3],
}

impl Links {
    fn all(&self) -> [&Link; 3] {
        [&self.servers, &self.near, &self.far]
    }
}

impl Listeners {
    async fn bind() -> Self {
        // Another process may have the port at one of the addresses; then another port is tried.
        for _ in 0..20 {
            let first = TcpListener::bind((SERVERS, 0)).await.unwrap();
            let port = first.local_addr().unwrap().port();
            let others = (TcpListener::bind((NEAR, port)).await, TcpListener::bind((FAR, port)).await);
            if let (Ok(near), Ok(far)) = others {
                return Self { port, at: [first, near, far] };
            }
        }
        panic!("no port is free at all addresses");
    }

    fn to(self, server: u16) -> Links {
        let [servers, near, far] = self.at.map(|listener| Link::start(listener, server));
        Links { port: self.port, servers, near, far }
    }
}
