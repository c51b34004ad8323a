//! A network in this process: hosts, links between them, and their faults.
//!
//! A client opens a stream to `server.client`, which names both hosts, because the client library of Redis knows
//! only addresses. A stream keeps the order of its bytes, as TCP does; streams of one link overtake each other.

mod stream;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use history::Rng;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

use crate::trace::event;
pub use stream::Stream;
use stream::{Pipe, connected};

/// The network of this process.
static NETWORK: LazyLock<Mutex<Network>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Network {
    conditions: Option<Conditions>,
    listeners: BTreeMap<String, mpsc::UnboundedSender<Accepted>>,
    /// Hosts that do not run until this time.
    frozen: BTreeMap<String, Instant>,
    /// Hosts that read nothing until this time.
    reads_nothing: BTreeMap<String, Instant>,
    /// What happens as soon as a host has sent something.
    triggers: BTreeMap<String, Trigger>,
    /// Links that carry nothing until this time.
    partitioned: BTreeMap<[String; 2], Instant>,
    /// Clients whose process has ended.
    dead: Vec<String>,
    streams: Vec<Connected>,
    opened: u64,
}

/// A fault at the moment in which a host has sent something.
pub enum Trigger {
    /// The host does not run for this time, and may read.
    Freeze(Duration, bool),
    /// Its process is told to end.
    Kill(Arc<Notify>),
    /// The stream ends, and what was sent is lost, after this number of other sends.
    Cut(u8),
    /// Its peer cannot reach this server for this time.
    Isolate(String, Duration),
}

/// How long bytes take, and how many are lost.
#[derive(Clone, Debug)]
pub struct Conditions {
    pub rng: Rng,
    /// Longest usual delay, ms.
    pub delay_ms: u64,
    /// How many of 1000 writes are lost and sent again.
    pub lost: u64,
}

/// A stream that a server accepted, and its client.
pub struct Accepted {
    pub client: String,
    pub stream: Stream,
}

/// An open stream.
struct Connected {
    client: String,
    server: String,
    pipes: [Weak<Pipe>; 2],
}

fn network() -> MutexGuard<'static, Network> {
    NETWORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets how long bytes take from now on. Before the first call they take no time.
pub fn set_conditions(conditions: Conditions) {
    network().conditions = Some(conditions);
}

/// Accepts streams to this host from now on. Until then they are refused.
pub fn listen(host: &str) -> mpsc::UnboundedReceiver<Accepted> {
    let (sender, receiver) = mpsc::unbounded_channel();
    network().listeners.insert(host.to_owned(), sender);
    receiver
}

/// Answers each line that is sent to this host, in a stream of its own. Without a reply, the stream ends.
pub fn serve<F>(host: &'static str, answer: impl Fn(String) -> F + Clone + Send + 'static)
where
    F: Future<Output = Option<String>> + Send,
{
    let mut streams = listen(host);
    tokio::spawn(async move {
        while let Some(Accepted { mut stream, .. }) = streams.recv().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = String::new();
                if BufReader::new(&mut stream).read_line(&mut request).await.is_ok()
                    && let Some(reply) = answer(request).await
                {
                    let _sent = stream.write_all(reply.as_bytes()).await;
                }
            });
        }
    });
}

/// Opens a stream to a `server.client`. It is refused if that server does not run.
pub async fn connect(address: &str) -> io::Result<Stream> {
    let (server, client) = address.split_once('.').ok_or(io::ErrorKind::InvalidInput)?;
    let (id, arrives) = {
        let mut network = network();
        network.opened += 1;
        (network.opened, network.arrives(client, server))
    };
    sleep_until(arrives.max(frozen_until(server))).await;
    let accepted = {
        let mut network = network();
        let listener = network.listeners.get(server).filter(|_| !network.dead.iter().any(|dead| dead == client));
        let Some(listener) = listener else {
            event(|| format!("{client} → {server}: refused"));
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let (own, other, pipes) = connected(id, client, server);
        let refused = listener.send(Accepted { client: client.to_owned(), stream: other }).is_err();
        network.streams.retain(|stream| stream.pipes.iter().all(|pipe| pipe.strong_count() > 0));
        network.streams.push(Connected { client: client.to_owned(), server: server.to_owned(), pipes });
        if refused { None } else { Some(own) }
    };
    let back = network().arrives(server, client);
    sleep_until(back.max(frozen_until(client))).await;
    event(|| format!("{client} → {server}: stream {id} {}", if accepted.is_some() { "opened" } else { "refused" }));
    accepted.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
}

/// Ends all streams of this link. Bytes that have not arrived are lost.
pub fn cut(client: &str, server: &str) {
    event(|| format!("FAULT the streams of {client} and {server} are cut"));
    reset(|stream| stream.client == client && stream.server == server);
}

/// Nothing arrives any more on the streams of this link, of which neither host is told: the server has failed, and
/// another one has its name. New streams lead to that one.
pub fn silence(client: &str, server: &str) {
    event(|| format!("FAULT the streams of {client} and {server} are silent"));
    let network = network();
    let silent = network.streams.iter().filter(|stream| stream.client == client && stream.server == server);
    silent.flat_map(|stream| &stream.pipes).filter_map(Weak::upgrade).for_each(|pipe| pipe.silence());
}

/// For this time, nothing that is sent on this link arrives.
pub fn partition(client: &str, server: &str, lasts: Duration) {
    event(|| format!("FAULT {client} and {server} are partitioned for {lasts:?}"));
    network().partitioned.insert([client.to_owned(), server.to_owned()], Instant::now() + lasts);
}

/// For this time, the host does not run. If it may read, bytes that arrive are read by its client library: when a
/// process runs again, it may find a reply or its timeout first.
pub fn freeze(host: &str, lasts: Duration, may_read: bool) {
    network().freeze(host, lasts, may_read);
}

/// Ends the streams of a server, which then refuses others until it listens again.
pub fn stop(server: &str) {
    network().listeners.remove(server);
    reset(|stream| stream.server == server);
}

/// Ends the process of a client: its streams and those that it still tries to open.
pub fn kill(client: &str) {
    event(|| format!("the process {client} ends"));
    network().dead.push(client.to_owned());
    reset(|stream| stream.client == client);
}

/// Injects the fault as soon as the host has sent something.
pub fn arm(host: &str, trigger: Trigger) {
    let what = match &trigger {
        Trigger::Freeze(..) => "does not run",
        Trigger::Kill(_) => "is killed",
        Trigger::Cut(_) => "loses a stream",
        Trigger::Isolate(..) => "has its peer isolated",
    };
    event(|| format!("FAULT {host} {what} as soon as it has sent something"));
    network().triggers.insert(host.to_owned(), trigger);
}

/// Removes the trigger of this host.
pub fn disarm_host(host: &str) {
    network().triggers.remove(host);
}

/// Removes all triggers.
pub fn disarm() {
    network().triggers.clear();
}

fn reset(chosen: impl Fn(&Connected) -> bool) {
    let mut network = network();
    let (ended, others) = mem::take(&mut network.streams).into_iter().partition(chosen);
    network.streams = others;
    drop(network);
    ended.iter().flat_map(|stream: &Connected| &stream.pipes).filter_map(Weak::upgrade).for_each(|pipe| pipe.reset());
}

/// The time until which the host does not run.
pub fn frozen_until(host: &str) -> Instant {
    network().frozen.get(host).copied().unwrap_or_else(Instant::now)
}

/// The time until which the host reads nothing.
fn reads_nothing_until(host: &str) -> Instant {
    network().reads_nothing.get(host).copied().unwrap_or_else(Instant::now)
}

impl Network {
    fn freeze(&mut self, host: &str, lasts: Duration, may_read: bool) {
        event(|| format!("FAULT {host} does not run for {lasts:?}, may read: {may_read}"));
        self.frozen.insert(host.to_owned(), Instant::now() + lasts);
        if !may_read {
            self.reads_nothing.insert(host.to_owned(), Instant::now() + lasts);
        }
    }

    /// The host has sent something. Returns whether the stream ends.
    fn sent(&mut self, host: &str, peer: &str) -> bool {
        match self.triggers.remove(host) {
            Some(Trigger::Freeze(lasts, may_read)) => self.freeze(host, lasts, may_read),
            Some(Trigger::Kill(kill)) => kill.notify_one(),
            Some(Trigger::Cut(0)) => return true,
            Some(Trigger::Cut(others)) => _ = self.triggers.insert(host.to_owned(), Trigger::Cut(others - 1)),
            Some(Trigger::Isolate(server, lasts)) => {
                event(|| format!("FAULT {peer} and {server} are partitioned for {lasts:?}"));
                self.partitioned.insert([peer.to_owned(), server], Instant::now() + lasts);
            }
            None => {}
        }
        false
    }

    /// When bytes arrive that are sent now.
    fn arrives(&mut self, from: &str, to: &str) -> Instant {
        let now = Instant::now();
        let link = [[from, to], [to, from]].map(|link| link.map(str::to_owned));
        let partitioned = link.iter().filter_map(|link| self.partitioned.get(link));
        let sent = partitioned.chain(self.frozen.get(from)).fold(now, |sent, until| sent.max(*until));
        let Some(Conditions { rng, delay_ms, lost }) = &mut self.conditions else { return sent };
        let again = if rng.happens(*lost) { rng.ms(200..1200) } else { Duration::ZERO };
        sent + again + rng.ms(1..*delay_ms + 1)
    }
}

/// Runs a future as the process of this host: not while the host does not run.
pub async fn run_on<T>(host: &str, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let thaw = frozen_until(host);
        if thaw > Instant::now() {
            sleep_until(thaw).await;
        }
        let polled = poll_fn(|cx| {
            if frozen_until(host) > Instant::now() {
                return Poll::Ready(None);
            }
            future.as_mut().poll(cx).map(Some)
        });
        if let Some(output) = polled.await {
            return output;
        }
    }
}

/// A client of this name, whose address on this server is `server.client`.
pub fn address(server: &str, client: &str) -> String {
    format!("{server}.{client}")
}
