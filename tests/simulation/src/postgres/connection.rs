//! The stream of a session: reads messages, and notices its end.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use crate::network::Stream;

pub(super) struct Connection {
    /// `None` for an operator at the server.
    stream: Option<Stream>,
    received: Vec<u8>,
    has_ended: bool,
}

impl Connection {
    pub(super) fn new(stream: Option<Stream>) -> Self {
        Self { stream, received: Vec::with_capacity(4096), has_ended: false }
    }

    /// The next message and its kind. `None` at the end of the stream. Loses nothing if it is dropped.
    pub(super) async fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(length) = self.length(1)
                && self.received.len() > length
            {
                let body = self.received[5..=length].to_vec();
                let kind = self.received[0];
                self.received.drain(..=length);
                return Some((kind, body));
            }
            if !self.read().await {
                return None;
            }
        }
    }

    /// The first message, which has no kind.
    pub(super) async fn startup(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = self.length(0)
                && self.received.len() >= length
            {
                let body = self.received[4..length].to_vec();
                self.received.drain(..length);
                return Some(body);
            }
            if !self.read().await {
                return None;
            }
        }
    }

    /// The length of the next message, which is at this place.
    fn length(&self, at: usize) -> Option<usize> {
        let length = self.received.get(at..at + 4)?;
        usize::try_from(u32::from_be_bytes(length.try_into().ok()?)).ok().map(|length| length.max(4))
    }

    /// Returns false at the end of the stream.
    async fn read(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return std::future::pending().await };
        self.has_ended |= !stream.read_buf(&mut self.received).await.is_ok_and(|count| count > 0);
        !self.has_ended
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> bool {
        match &mut self.stream {
            Some(stream) => stream.write_all(bytes).await.is_ok(),
            None => true,
        }
    }

    /// Returns as soon as the client is found to be gone, while a statement is executed.
    pub(super) async fn gone(&mut self, check_interval: Option<Duration>) {
        let Some(interval) = check_interval else { return std::future::pending().await };
        loop {
            tokio::select! {
                biased;
                () = sleep(interval) => {
                    if self.has_ended {
                        return;
                    }
                }
                _ = self.read(), if !self.has_ended => {}
            }
        }
    }
}
