//! Lines that take time: what goes in comes out so much later, in the same order.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::precise::wait_until;

#[derive(Clone)]
pub(crate) struct DelayLine {
    delay: Duration,
    parcels: mpsc::Sender<Parcel>,
}

struct Parcel {
    due: Instant,
    to: TcpStream,
    bytes: Vec<u8>,
}

impl DelayLine {
    pub(crate) fn start(delay: Duration) -> Self {
        let (parcels, waiting) = mpsc::channel::<Parcel>();
        thread::spawn(move || {
            for Parcel { due, mut to, bytes } in waiting {
                wait_until(due);
                // Who has hung up wants nothing more.
                let _ = to.write_all(&bytes);
            }
        });
        Self { delay, parcels }
    }

    pub(crate) fn send(&self, to: &TcpStream, bytes: Vec<u8>) {
        // Neither fails: the thread lives as long as this, and a descriptor is free.
        if let Ok(to) = to.try_clone() {
            let _ = self.parcels.send(Parcel { due: Instant::now() + self.delay, to, bytes });
        }
    }
}
