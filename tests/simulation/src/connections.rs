//! The connections of the client library of Redis: what was sent on each, and when it was answered, as the client saw
//! it.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use history::monotonic_us;
use redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use crate::network;
use crate::redis::{take_command, take_reply};

/// All connections of this process, in the order in which they were dialled.
static CONNECTIONS: Mutex<Vec<Connection>> = Mutex::new(Vec::new());

/// A connection, or the attempt to open one. Times are by the monotonic clock, µs.
#[derive(Clone, Debug)]
pub struct Connection {
    pub client: String,
    pub address: ConnectionAddr,
    pub dialled_us: u64,
    /// Whether there was a stream.
    pub is_open: bool,
    /// When its stream failed.
    pub broken_us: Option<u64>,
    /// When the client dropped it, or could not open it.
    pub dropped_us: Option<u64>,
    /// In the order in which they were sent.
    pub exchanges: Vec<Exchange>,
}

impl Connection {
    /// The host of its address.
    pub fn host(&self) -> Option<&str> {
        match &self.address {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host),
            ConnectionAddr::Unix(_) | _ => None,
        }
    }
}

/// A command and its reply.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub command: String,
    /// Of AUTH and SELECT.
    pub arguments: Vec<String>,
    /// The keys of the records of a script call, and whether they are declared.
    pub records: Vec<String>,
    pub declares_keys: bool,
    /// Of the command and its arguments.
    pub bytes: usize,
    pub sent_us: u64,
    pub answered_us: Option<u64>,
    /// The reply, if it is an error.
    pub error: Option<String>,
}

/// The connections up to now.
pub fn connections() -> Vec<Connection> {
    lock().clone()
}

fn lock() -> MutexGuard<'static, Vec<Connection>> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the streams of the client library of Redis.
pub fn dial_redis() {
    use idempotent_sqs::stores::redis::simulation::{Stream, dial_with};
    // The timeout of the client library.
    const CONNECT: Duration = Duration::from_millis(500);
    dial_with(|address| {
        Box::pin(async move {
            let (ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) = &address else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let recording = Recording::begin(host, &address);
            let stream = timeout(CONNECT, network::connect(host)).await;
            let stream = stream.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
            recording.change(|connection| connection.is_open = true);
            let recorded = Recorded { stream, recording, sent: Vec::new(), received: Vec::new(), answered: 0 };
            Ok(Box::new(recorded) as Box<dyn Stream>)
        })
    });
}

/// What is recorded of one connection, until it is dropped.
struct Recording {
    number: usize,
}

impl Recording {
    fn begin(host: &str, address: &ConnectionAddr) -> Self {
        let (_server, client) = host.split_once('.').unwrap_or_default();
        let mut connections = lock();
        connections.push(Connection {
            client: client.to_owned(),
            address: address.clone(),
            dialled_us: monotonic_us(),
            is_open: false,
            broken_us: None,
            dropped_us: None,
            exchanges: Vec::new(),
        });
        Self { number: connections.len() - 1 }
    }

    fn change(&self, change: impl FnOnce(&mut Connection)) {
        change(&mut lock()[self.number]);
    }

    fn broken(&self) {
        self.change(|connection| _ = connection.broken_us.get_or_insert_with(monotonic_us));
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.change(|connection| connection.dropped_us = Some(monotonic_us()));
    }
}

/// A stream that records its commands and replies.
struct Recorded {
    stream: network::Stream,
    recording: Recording,
    /// Bytes of an incomplete command.
    sent: Vec<u8>,
    /// Bytes of an incomplete reply.
    received: Vec<u8>,
    /// Number of replies.
    answered: usize,
}

impl AsyncRead for Recorded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if read.is_err() || buffer.filled().len() == filled {
            self.recording.broken();
        }
        let Self { recording, received, answered, .. } = &mut *self;
        received.extend(&buffer.filled()[filled..]);
        while let Some(reply) = take_reply(received) {
            let at = *answered;
            *answered += 1;
            recording.change(|connection| {
                if let Some(exchange) = connection.exchanges.get_mut(at) {
                    (exchange.answered_us, exchange.error) = (Some(monotonic_us()), reply.err());
                }
            });
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        let Self { recording, sent, .. } = &mut *self;
        match written {
            Ok(count) => sent.extend(&bytes[..count]),
            Err(_) => recording.broken(),
        }
        while let Some(command) = take_command(sent) {
            let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
            let name = text(&command[0]);
            let has_arguments = name == "AUTH" || name == "SELECT";
            let arguments = command[1..].iter().filter(|_| has_arguments).map(text).collect();
            let sent_us = monotonic_us();
            let (records, declares_keys) = records(&command);
            let exchange = Exchange {
                command: name,
                arguments,
                records,
                declares_keys,
                bytes: command.iter().map(Vec::len).sum(),
                sent_us,
                answered_us: None,
                error: None,
            };
            recording.change(|connection| connection.exchanges.push(exchange));
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The keys of the records of this command, if it is a script call of the store, and whether they are declared.
fn records(command: &[Vec<u8>]) -> (Vec<String>, bool) {
    let [name, _script, declared, rest @ ..] = command else { return (Vec::new(), false) };
    if !name.starts_with(b"EVAL") {
        return (Vec::new(), false);
    }
    let declares_keys = declared != b"0";
    // Otherwise their number is the first argument.
    let (count, keys) =
        if declares_keys { (Some(declared), rest) } else { (rest.first(), rest.get(1..).unwrap_or_default()) };
    let count = count.and_then(|count| std::str::from_utf8(count).ok()?.parse().ok()).unwrap_or(0);
    (keys.iter().take(count).map(|key| String::from_utf8_lossy(key).into_owned()).collect(), declares_keys)
}
