//! An HTTP/1.1 server that controls how connections end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{Answer, Request};
use crate::soon;

/// Passes every request to its handler, and sends the handler's response.
pub struct Server {
    port: u16,
    connections: Arc<Connections>,
    new_connections: watch::Sender<NewConnections>,
    _running: JoinSet<()>,
}

/// What happens to new connections. Open ones stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewConnections {
    Accepted,
    /// The server does not listen.
    Refused,
    /// The server does not answer a SYN, as a host that cannot be reached.
    Ignored,
}

/// The connections of a server.
#[derive(Default)]
struct Connections {
    made: AtomicUsize,
    open: watch::Sender<usize>,
    close: Notify,
    forget: Notify,
}

impl Server {
    pub async fn start<A>(handler: impl Fn(Request) -> A + Clone + Send + 'static) -> Self
    where
        A: Future<Output = Answer> + Send,
    {
        let mut listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(Connections::default());
        let (new_connections, mut changes) = watch::channel(NewConnections::Accepted);
        let mut running = JoinSet::new();
        let shared = Arc::clone(&connections);
        running.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((connection, _)) = listener.accept() => {
                        let (handler, connections) = (handler.clone(), Arc::clone(&shared));
                        open.spawn(async move { connections.serve(connection, handler).await });
                    }
                    Ok(()) = changes.changed() => {
                        let change = *changes.borrow();
                        let mut accepted = async || changes.wait_for(|now| *now == NewConnections::Accepted).await.is_ok();
                        match change {
                            NewConnections::Accepted => {}
                            NewConnections::Refused => {
                                drop(listener);
                                if !accepted().await {
                                    return;
                                }
                                listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
                            }
                            NewConnections::Ignored => {
                                let queued = fill_queue(&listener).await;
                                accepted().await;
                                drop(queued);
                                SockRef::from(&listener).listen(QUEUE).unwrap();
                            }
                        }
                    }
                    else => return,
                }
            }
        });
        Self { port, connections, new_connections, _running: running }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn set_new_connections(&self, new_connections: NewConnections) {
        self.new_connections.send_replace(new_connections);
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.made.load(Ordering::SeqCst)
    }

    /// Closes every connection. The server keeps listening.
    pub async fn close_connections(&self) {
        self.connections.close.notify_waiters();
        soon(self.connections.open.subscribe().wait_for(|open| *open == 0)).await.unwrap();
    }

    /// Answers the next byte on every open connection with a reset, as a peer that has restarted.
    pub fn reset_connections(&self) {
        self.connections.forget.notify_waiters();
    }
}

/// Fills the queue of connections that wait to be accepted. No further SYN is answered, until the queue is longer or one of
/// these connections is accepted.
pub async fn fill_queue(listener: &TcpListener) -> Vec<TcpStream> {
    SockRef::from(listener).listen(1).unwrap();
    let (address, mut queued) = (listener.local_addr().unwrap(), Vec::new());
    while let Ok(connected) = timeout(ANSWERED_WITHIN, TcpStream::connect(address)).await {
        queued.push(connected.unwrap());
    }
    queued
}

/// How long the queue of a listener usually is.
const QUEUE: i32 = 1024;

/// A SYN is answered at once, or not.
const ANSWERED_WITHIN: Duration = Duration::from_millis(200);

impl Connections {
    async fn serve<A: Future<Output = Answer>>(&self, connection: TcpStream, handler: impl Fn(Request) -> A) {
        self.made.fetch_add(1, Ordering::SeqCst);
        self.open.send_modify(|open| *open += 1);
        let mut connection = BufReader::new(connection);
        tokio::select! {
            () = serve(&mut connection, handler) => {}
            () = self.close.notified() => {}
            () = self.forget.notified() => {
                // The client may have closed it.
                let _ = connection.get_ref().peek(&mut [0]).await;
                connection.get_ref().set_zero_linger().unwrap();
            }
        }
        drop(connection);
        self.open.send_modify(|open| *open -= 1);
    }
}

async fn serve<A: Future<Output = Answer>>(connection: &mut BufReader<TcpStream>, handler: impl Fn(Request) -> A) {
    let mut responded: Option<Instant> = None;
    while let Some(mut request) = Request::read(connection).await {
        request.idle = responded.map(|at| at.elapsed());
        match handler(request).await {
            Answer::Whole(bytes) if connection.write_all(&bytes).await.is_ok() => responded = Some(Instant::now()),
            Answer::Cut(bytes) => {
                // The client may have closed it.
                let _ = connection.write_all(&bytes).await;
                return;
            }
            Answer::Dripping(mut bytes) => {
                while connection.write_all(&bytes).await.is_ok() {
                    bytes = vec![b'.'];
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                return;
            }
            Answer::Reset => return connection.get_ref().set_zero_linger().unwrap(),
            Answer::Whole(_) | Answer::Held => return,
        }
    }
}
