//! An address in front of a server. It can be made to lead to another server, to cut what is
//! connected, and to swallow replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub(crate) struct Front {
    pub(crate) port: u16,
    state: Arc<State>,
    _running: JoinSet<()>,
}

struct State {
    leads_to: AtomicU16,
    swallows: AtomicBool,
    cut: Notify,
    silence: Notify,
}

impl Front {
    pub(crate) async fn to(server: u16) -> Self {
        Self::on(0, server).await
    }

    pub(crate) async fn on(port: u16, server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            leads_to: AtomicU16::new(server),
            swallows: AtomicBool::new(false),
            cut: Notify::new(),
            silence: Notify::new(),
        };
        let state = Arc::new(state);
        let mut running = JoinSet::new();
        let shared = Arc::clone(&state);
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
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

    /// New connections go to this server from now on; those that stand stay where they are.
    pub(crate) fn lead_to(&self, server: u16) {
        self.state.leads_to.store(server, Ordering::SeqCst);
    }

    /// End all connections that stand.
    pub(crate) fn cut(&self) {
        self.state.cut.notify_waiters();
    }

    /// Nothing passes any more on the connections that stand, and nobody is told.
    #[cfg(feature = "postgres")]
    pub(crate) fn silence(&self) {
        self.state.silence.notify_waiters();
    }

    /// Commands pass, and replies do not, until it is told otherwise.
    pub(crate) fn swallow_replies(&self, swallows: bool) {
        self.state.swallows.store(swallows, Ordering::SeqCst);
    }
}

async fn pass(mut near: TcpStream, state: &State) {
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", state.leads_to.load(Ordering::SeqCst))).await else { return };
    let (mut from_near, mut to_near) = near.split();
    let (mut from_far, mut to_far) = far.split();
    let replies = async {
        let mut chunk = vec![0; 65_536];
        while let Ok(length @ 1..) = from_far.read(&mut chunk).await {
            let swallowed = state.swallows.load(Ordering::SeqCst);
            if !swallowed && to_near.write_all(&chunk[..length]).await.is_err() {
                return;
            }
        }
    };
    // Either side may end it.
    tokio::select! {
        () = state.silence.notified() => std::future::pending().await,
        _ = tokio::io::copy(&mut from_near, &mut to_far) => {}
        () = replies => {}
    }
}
