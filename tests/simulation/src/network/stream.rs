//! A stream between two hosts: two pipes, whose bytes arrive later than they are sent.

use std::collections::VecDeque;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{network, reads_nothing_until};
use crate::trace::event;

/// One end of a stream.
pub struct Stream {
    id: u64,
    host: String,
    peer: String,
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// One direction of a stream.
#[derive(Default)]
pub(super) struct Pipe(Mutex<Bytes>);

#[derive(Default)]
struct Bytes {
    /// Each write, and when it arrives.
    sent: VecDeque<(Instant, Vec<u8>)>,
    last: Option<Instant>,
    ended: bool,
    reset: bool,
    /// Nothing arrives any more, not even that the stream has ended.
    silent: bool,
    reader: Option<Waker>,
}

/// Both ends of a new stream, and its pipes.
pub(super) fn connected(id: u64, client: &str, server: &str) -> (Stream, Stream, [Weak<Pipe>; 2]) {
    let (to, from) = (Arc::new(Pipe::default()), Arc::new(Pipe::default()));
    let pipes = [Arc::downgrade(&to), Arc::downgrade(&from)];
    let end = |host: &str, peer: &str, incoming: &Arc<Pipe>, outgoing: &Arc<Pipe>| Stream {
        id,
        host: host.to_owned(),
        peer: peer.to_owned(),
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        timer: None,
    };
    (end(client, server, &from, &to), end(server, client, &to, &from), pipes)
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing arrives from now on, and neither side is told.
    pub(super) fn silence(&self) {
        let mut bytes = self.lock();
        bytes.silent = true;
        bytes.sent.clear();
    }

    /// Ends the stream. Bytes that have not arrived are lost.
    pub(super) fn reset(&self) {
        let mut bytes = self.lock();
        bytes.reset = true;
        bytes.sent.clear();
        bytes.wake();
    }
}

impl Bytes {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let thaw = reads_nothing_until(&this.host);
        loop {
            let mut bytes = this.incoming.lock();
            if bytes.reset {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let has_ended = bytes.ended && !bytes.silent;
            let arrives = bytes.sent.front().map(|(arrives, _)| *arrives).or(bytes.last.filter(|_| has_ended));
            let Some(arrives) = arrives.or(has_ended.then_some(thaw)) else {
                bytes.reader = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let ready = arrives.max(thaw);
            if ready <= Instant::now() {
                // None at the end of the stream.
                if let Some((_, mut sent)) = bytes.sent.pop_front() {
                    let rest = sent.split_off(buffer.remaining().min(sent.len()));
                    buffer.put_slice(&sent);
                    if !rest.is_empty() {
                        bytes.sent.push_front((arrives, rest));
                    }
                }
                return Poll::Ready(Ok(()));
            }
            // A reset wakes the reader before that.
            bytes.reader = Some(cx.waker().clone());
            drop(bytes);
            let timer = this.timer.insert(Box::pin(sleep_until(ready)));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, written: &[u8]) -> Poll<io::Result<usize>> {
        let mut bytes = self.outgoing.lock();
        if bytes.reset || bytes.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.silent {
            return Poll::Ready(Ok(written.len()));
        }
        let arrives = network().arrives(&self.host, &self.peer).max(bytes.last.unwrap_or_else(Instant::now));
        bytes.last = Some(arrives);
        bytes.sent.push_back((arrives, written.to_vec()));
        bytes.wake();
        event(|| {
            let mut hash = DefaultHasher::new();
            written.hash(&mut hash);
            let (Self { id, host, peer, .. }, count, hash) = (&*self, written.len(), hash.finish());
            let delay = arrives - Instant::now();
            format!("{host} → {peer}: {count} bytes on {id}, {hash:016x}, arrive in {delay:?}")
        });
        drop(bytes);
        if network().sent(&self.host, &self.peer) {
            event(|| format!("FAULT stream {} is cut", self.id));
            self.outgoing.reset();
            self.incoming.reset();
        }
        Poll::Ready(Ok(written.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = self.outgoing.lock();
        bytes.ended = true;
        bytes.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut bytes = self.outgoing.lock();
        bytes.ended = true;
        bytes.wake();
        drop(bytes);
        // The peer can write no more.
        self.incoming.lock().ended = true;
    }
}
