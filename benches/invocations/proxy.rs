//! A relay in front of a Redis: it counts what passes, and can take its time.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::delay::DelayLine;
use crate::server::url;

/// What is read at once, in bytes: a large pipeline should pass in few pieces.
const BUFFER: usize = 256 * 1024;

pub(crate) struct Backfill {
    address: SocketAddr,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) commands: usize,
    /// Times that a client, with nothing outstanding, sent something. A pipeline is one, however long.
    pub(crate) round_trips: usize,
}

impl Backfill {
    /// A relay to this port, that delays each direction by half a round trip.
    pub(crate) fn start(port: u16, round_trip: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Mutex::new(Counts::default()));
        let known = Arc::clone(&counts);
        thread::spawn(move || {
            for client in listener.incoming() {
                let server = TcpStream::connect(("127.0.0.1", port));
                if let (Ok(client), Ok(server)) = (client, server) {
                    // Where it fails, the client sees its connection end.
                    let _ = connect(client, server, round_trip / 2, &known);
                }
            }
        });
        Ok(Self { address, counts })
    }

    pub(crate) fn url(&self) -> String {
        url(self.address.port())
    }

    /// What has passed until now.
    pub(crate) fn counts(&self) -> Counts {
        *lock(&self.counts)
    }
}

fn connect(client: TcpStream, server: TcpStream, delay: Duration, counts: &Arc<Mutex<Counts>>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let outstanding = Arc::new(Mutex::new(0_usize));
    let (to_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let (counts, expected) = (Arc::clone(counts), Arc::clone(&outstanding));
    let mut asked = Values::default();
    thread::spawn(move || {
        pass(client, &to_server, delay, |bytes| {
            let (mut counts, mut outstanding) = (lock(&counts), lock(&expected));
            if *outstanding == 0 && asked.is_between_two() {
                counts.round_trips += 1;
            }
            let commands = asked.feed(bytes);
            counts.commands += commands;
            *outstanding += commands;
        });
    });
    let mut answered = Values::default();
    thread::spawn(move || {
        pass(server, &to_client, delay, |bytes| {
            let answers = answered.feed(bytes);
            let mut outstanding = lock(&outstanding);
            *outstanding = outstanding.saturating_sub(answers);
        });
    });
    Ok(())
}

fn pass(mut from: TcpStream, to: &TcpStream, delay: Duration, mut look: impl FnMut(&[u8])) {
    let line = DelayLine::start(delay);
    let mut buffer = vec![0; BUFFER];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        look(&buffer[..length]);
        line.send(to, buffer[..length].to_vec());
    }
    // It may be closed already.
    let _ = to.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the values in a stream of Redis's protocol. A command is one, a list of words.
///
/// <https://redis.io/docs/latest/develop/reference/protocol-spec/>
#[derive(Default)]
struct Values {
    /// The start of a line whose end has not come yet.
    line: Vec<u8>,
    /// Bytes to come of a string, with the end of its line.
    string: usize,
    /// Values to come in each list that is open.
    lists: Vec<usize>,
}

impl Values {
    fn is_between_two(&self) -> bool {
        self.line.is_empty() && self.string == 0 && self.lists.is_empty()
    }

    /// How many values end in these bytes.
    fn feed(&mut self, mut bytes: &[u8]) -> usize {
        let mut ended = 0;
        while !bytes.is_empty() {
            if self.string > 0 {
                let passed = self.string.min(bytes.len());
                self.string -= passed;
                bytes = &bytes[passed..];
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
            // What is null has no size, and is a value by itself.
            let size = str::from_utf8(&line).ok().and_then(|line| line.get(1..)?.trim().parse::<usize>().ok());
            match (line.first(), size) {
                (Some(b'$' | b'!' | b'='), Some(size)) => self.string = size + 2,
                (Some(b'*' | b'~'), Some(size @ 1..)) => self.lists.push(size),
                (Some(b'%'), Some(size @ 1..)) => self.lists.push(2 * size),
                _ => ended += self.end_value(),
            }
        }
        ended
    }

    /// 1 where this was all, 0 where it was inside a list that goes on.
    fn end_value(&mut self) -> usize {
        while let Some(to_come) = self.lists.last_mut() {
            *to_come -= 1;
            if *to_come > 0 {
                return 0;
            }
            self.lists.pop();
        }
        1
    }
}
