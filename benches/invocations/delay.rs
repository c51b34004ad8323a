//! A delay line: sends bytes on after a fixed time, in order.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use benches::precise::wait_until;

#[derive(Clone)]
pub(crate) struct DelayLine {
    delay: Duration,
    packets: mpsc::Sender<Packet>,
}

struct Packet {
    due: Instant,
    to: TcpStream,
    bytes: Vec<u8>,
}

impl DelayLine {
    pub(crate) fn start(delay: Duration) -> Self {
        let (packets, queue) = mpsc::channel::<Packet>();
        thread::spawn(move || {
            for Packet { due, mut to, bytes } in queue {
                wait_until(due);
                // Fails if the receiver has closed the connection.
                let _ = to.write_all(&bytes);
            }
        });
        Self { delay, packets }
    }

    pub(crate) fn send(&self, to: &TcpStream, bytes: Vec<u8>) {
        // Both succeed: a file descriptor is free, and the thread lives as long as this value.
        if let Ok(to) = to.try_clone() {
            let _ = self.packets.send(Packet { due: Instant::now() + self.delay, to, bytes });
        }
    }
}
