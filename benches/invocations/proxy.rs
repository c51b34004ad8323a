//! A proxy in front of Redis that counts commands and round trips, and can add a delay.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use benches::server::url;

use crate::delay::DelayLine;

/// The size of a read in bytes, so that a large pipeline takes few reads.
const BUFFER: usize = 256 * 1024;

pub(crate) struct Proxy {
    address: SocketAddr,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) commands: usize,
    /// Requests sent while no reply was outstanding. A pipeline is one round trip.
    pub(crate) round_trips: usize,
}

impl Proxy {
    /// A proxy to this port that delays each direction by half of `round_trip`.
    pub(crate) fn start(port: u16, round_trip: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Mutex::new(Counts::default()));
        let shared = Arc::clone(&counts);
        thread::spawn(move || {
            for client in listener.incoming() {
                let server = TcpStream::connect(("127.0.0.1", port));
                if let (Ok(client), Ok(server)) = (client, server) {
                    // If it fails, the client sees a closed connection.
                    let _ = connect(client, server, round_trip / 2, &shared);
                }
            }
        });
        Ok(Self { address, counts })
    }

    pub(crate) fn url(&self) -> String {
        url(self.address.port())
    }

    /// The counts since the start.
    pub(crate) fn counts(&self) -> Counts {
        *lock(&self.counts)
    }
}

fn connect(client: TcpStream, server: TcpStream, delay: Duration, counts: &Arc<Mutex<Counts>>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let outstanding = Arc::new(Mutex::new(0_usize));
    let (to_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let (counts, of_requests) = (Arc::clone(counts), Arc::clone(&outstanding));
    let mut requests = Values::default();
    thread::spawn(move || {
        forward(client, &to_server, delay, |bytes| {
            let (mut counts, mut outstanding) = (lock(&counts), lock(&of_requests));
            if *outstanding == 0 && requests.is_between_values() {
                counts.round_trips += 1;
            }
            let commands = requests.feed(bytes);
            counts.commands += commands;
            *outstanding += commands;
        });
    });
    let mut replies = Values::default();
    thread::spawn(move || {
        forward(server, &to_client, delay, |bytes| {
            let ended = replies.feed(bytes);
            let mut outstanding = lock(&outstanding);
            *outstanding = outstanding.saturating_sub(ended);
        });
    });
    Ok(())
}

fn forward(mut from: TcpStream, to: &TcpStream, delay: Duration, mut count: impl FnMut(&[u8])) {
    let line = DelayLine::start(delay);
    let mut buffer = vec![0; BUFFER];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        count(&buffer[..length]);
        line.send(to, buffer[..length].to_vec());
    }
    // Fails if it is closed.
    let _ = to.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the values in a stream of the Redis protocol. A command is one value, an array of strings.
///
/// <https://redis.io/docs/latest/develop/reference/protocol-spec/>
#[derive(Default)]
struct Values {
    /// The start of an incomplete line.
    line: Vec<u8>,
    /// Missing bytes of a string, with its line end.
    string: usize,
    /// Missing values of each open array.
    arrays: Vec<usize>,
}

impl Values {
    fn is_between_values(&self) -> bool {
        self.line.is_empty() && self.string == 0 && self.arrays.is_empty()
    }

    /// The number of top-level values that end in these bytes.
    fn feed(&mut self, mut bytes: &[u8]) -> usize {
        let mut ended = 0;
        while !bytes.is_empty() {
            if self.string > 0 {
                let length = self.string.min(bytes.len());
                self.string -= length;
                bytes = &bytes[length..];
                if self.string == 0 {
                    ended += self.end_value();
                }
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.line.extend(bytes);
                break;
            };
            self.line.extend(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            // A null has the size -1 and is a complete value.
            let size = str::from_utf8(&line).ok().and_then(|line| line.get(1..)?.trim().parse::<usize>().ok());
            match (line.first(), size) {
                (Some(b'$' | b'!' | b'='), Some(size)) => self.string = size + 2,
                (Some(b'*' | b'~'), Some(size @ 1..)) => self.arrays.push(size),
                (Some(b'%'), Some(size @ 1..)) => self.arrays.push(2 * size),
                _ => ended += self.end_value(),
            }
        }
        ended
    }

    /// Ends a value, and the arrays that it completes. Returns the number of top-level values that end: 0 or 1.
    fn end_value(&mut self) -> usize {
        while let Some(missing) = self.arrays.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return 0;
            }
            self.arrays.pop();
        }
        1
    }
}
