//! A TCP proxy in front of a server. It can switch to another server, close or freeze connections, drop requests or
//! replies, delay replies, reject scripts with flags, and send other scripts.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::Script;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

pub struct Front {
    pub port: u16,
    state: Arc<State>,
    _running: JoinSet<()>,
}

struct State {
    target: AtomicU16,
    drops_replies: AtomicBool,
    drops_requests: AtomicBool,
    dropped: Notify,
    delay_ms: AtomicU64,
    refuses_flags: AtomicBool,
    /// Texts to replace in requests, each by another of the same length.
    replaced: OnceLock<[(Vec<u8>, Vec<u8>); 2]>,
    connections: AtomicUsize,
    cut: Notify,
    frozen: Notify,
}

impl Front {
    pub async fn to(server: u16) -> Self {
        Self::on(0, server).await
    }

    pub async fn on(port: u16, server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            target: AtomicU16::new(server),
            drops_replies: AtomicBool::new(false),
            drops_requests: AtomicBool::new(false),
            dropped: Notify::new(),
            delay_ms: AtomicU64::new(0),
            refuses_flags: AtomicBool::new(false),
            replaced: OnceLock::new(),
            connections: AtomicUsize::new(0),
            cut: Notify::new(),
            frozen: Notify::new(),
        };
        let state = Arc::new(state);
        let mut running = JoinSet::new();
        let shared = Arc::clone(&state);
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                state.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(async move {
                    tokio::select! {
                        () = pass(near, &state) => {}
                        () = state.cut.notified() => {}
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, state, _running: running }
    }

    /// Forwards new connections to this server. Open connections are unchanged.
    pub fn forward_to(&self, server: u16) {
        self.state.target.store(server, Ordering::SeqCst);
    }

    /// Closes all open connections.
    pub fn cut(&self) {
        self.state.cut.notify_waiters();
    }

    /// Freezes all open connections: they stay open and forward nothing.
    pub fn freeze(&self) {
        self.state.frozen.notify_waiters();
    }

    /// Drops replies, and forwards requests, until it is switched off. A connection whose reply was dropped gets no
    /// further one: no connection loses bytes in the middle.
    pub fn drop_replies(&self, drops: bool) {
        self.state.drops_replies.store(drops, Ordering::SeqCst);
    }

    /// Drops requests, and forwards replies, until it is switched off. A connection whose request was dropped forwards
    /// no further one.
    pub fn drop_requests(&self, drops: bool) {
        self.state.drops_requests.store(drops, Ordering::SeqCst);
    }

    /// Waits until a request was dropped.
    pub async fn dropped(&self) {
        self.state.dropped.notified().await;
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Delays every further reply by this time.
    pub fn delay_replies(&self, delay: Duration) {
        self.state.delay_ms.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Makes the server run `other` instead of `script`. `other` must not be longer, apart from comments.
    pub fn replace_script(&self, script: &str, other: &str) {
        let code = other.lines().filter(|line| !line.trim_start().starts_with("-- ")).collect::<Vec<_>>().join("\n");
        let other = format!("{code:<length$}", length = script.len());
        assert_eq!(script.len(), other.len(), "the other script is too long");
        let hashes = [script, &other].map(|text| Script::new(text).get_hash().as_bytes().to_vec());
        let [hash, other_hash] = hashes;
        let texts = [(script.as_bytes().to_vec(), other.into_bytes()), (hash, other_hash)];
        self.state.replaced.set(texts).expect("one script is replaced");
    }

    /// Answers an EVAL whose script starts with `#!` as Redis 6.2 does, and does not forward it.
    pub fn reject_script_flags(&self) {
        self.state.refuses_flags.store(true, Ordering::SeqCst);
    }
}

/// The reply of Redis 6.2.14.
const NOT_COMPILED: &[u8] =
    b"-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'\r\n";

async fn pass(mut near: TcpStream, state: &State) {
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", state.target.load(Ordering::SeqCst))).await else { return };
    let (mut from_near, to_near) = near.split();
    let to_near = Mutex::new(to_near);
    let (mut from_far, mut to_far) = far.split();
    let requests = async {
        let mut chunk = vec![0; 65_536];
        let (mut request, mut drops) = (Vec::new(), false);
        while let Ok(length @ 1..) = from_near.read(&mut chunk).await {
            request.extend_from_slice(&chunk[..length]);
            let replaced = state.replaced.get();
            // A text may arrive in parts. Each argument ends with CRLF, and no replaced text contains it, so a request
            // that ends with CRLF ends with a whole text.
            if replaced.is_some() && !request.ends_with(b"\r\n") {
                continue;
            }
            replaced.into_iter().flatten().for_each(|(text, other)| replace(&mut request, text, other));
            let flagged = request.windows(6).any(|bytes| bytes == b"\n#!lua");
            drops |= state.drops_requests.load(Ordering::SeqCst);
            let outcome = if drops {
                state.dropped.notify_one();
                Ok(())
            } else if flagged && state.refuses_flags.load(Ordering::SeqCst) {
                to_near.lock().await.write_all(NOT_COMPILED).await
            } else {
                to_far.write_all(&request).await
            };
            request.clear();
            if outcome.is_err() {
                return;
            }
        }
    };
    let replies = async {
        let (mut chunk, mut drops) = (vec![0; 65_536], false);
        while let Ok(length @ 1..) = from_far.read(&mut chunk).await {
            drops |= state.drops_replies.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(state.delay_ms.load(Ordering::SeqCst))).await;
            if !drops && to_near.lock().await.write_all(&chunk[..length]).await.is_err() {
                return;
            }
        }
    };
    // Either side may close the connection.
    tokio::select! {
        () = state.frozen.notified() => std::future::pending().await,
        () = requests => {}
        () = replies => {}
    }
}

/// Replaces each `text` by `other`, which has the same length.
pub(crate) fn replace(bytes: &mut [u8], text: &[u8], other: &[u8]) {
    let starts: Vec<_> =
        (0..(bytes.len() + 1).saturating_sub(text.len())).filter(|at| bytes[*at..].starts_with(text)).collect();
    for start in starts {
        bytes[start..start + text.len()].copy_from_slice(other);
    }
}
