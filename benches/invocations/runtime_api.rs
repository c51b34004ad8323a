//! A Lambda Runtime API on loopback. It does as little as possible, as its cost is part of every figure. The thread of
//! a connection sends an event and measures the time to its response without another thread.
//!
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The time to the deadline in the headers of an invocation, as of a function with a long timeout.
const INVOCATION_TIMEOUT: Duration = Duration::from_secs(300);

/// Bytes. A smaller event is sent together with its header.
const BUFFER: usize = 64 * 1024;

/// The Runtime API of one function.
pub(crate) struct RuntimeApi {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// The response to an event.
pub(crate) struct Response {
    /// From the first byte of the event to the last byte of the response.
    pub(crate) took: Duration,
    /// When the response was complete.
    pub(crate) at: Instant,
    /// The response, or the reported error.
    pub(crate) body: Result<Vec<u8>, Vec<u8>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// When the function first requested an event.
    ready: Option<Instant>,
    events: VecDeque<Arc<[u8]>>,
    sent: Option<Instant>,
    responses: Vec<Response>,
    /// The reason why no more events are sent: an error of a connection, or the end of the measurement.
    closed: Option<String>,
}

impl RuntimeApi {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let of_listener = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming() {
                if of_listener.lock().closed.is_some() {
                    return;
                }
                let shared = Arc::clone(&of_listener);
                thread::spawn(move || {
                    if let Err(error) = connection.and_then(|connection| serve(&connection, &shared)) {
                        shared.close(&error.to_string());
                    }
                });
            }
        });
        Ok(Self { address, shared })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// When the function first requested an event. `None` if it did not do so within `timeout`.
    pub(crate) fn ready(&self, timeout: Duration) -> Result<Option<Instant>, String> {
        self.shared.wait(timeout, |state| state.ready)
    }

    /// Queues these events, which the function receives one after another.
    pub(crate) fn invoke(&self, events: &[Arc<[u8]>]) {
        let mut state = self.shared.lock();
        state.events.extend(events.iter().cloned());
        state.responses.reserve(events.len());
        self.shared.changed.notify_all();
    }

    /// The responses to this many events. `None` if they are not complete within `timeout`.
    pub(crate) fn responses(&self, count: usize, timeout: Duration) -> Result<Option<Vec<Response>>, String> {
        self.shared
            .wait(timeout, |state| (state.responses.len() >= count).then(|| std::mem::take(&mut state.responses)))
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.shared.close("the function was stopped");
        // A connection wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, reason: &str) {
        self.lock().closed.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }

    fn wait<T>(&self, timeout: Duration, mut found: impl FnMut(&mut State) -> Option<T>) -> Result<Option<T>, String> {
        let until = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if let Some(closed) = &state.closed {
                return Err(closed.clone());
            }
            if let Some(found) = found(&mut state) {
                return Ok(Some(found));
            }
            let remains = until.saturating_duration_since(Instant::now());
            if remains.is_zero() {
                return Ok(None);
            }
            state = self.changed.wait_timeout(state, remains).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the next event. `None` once the API is closed.
    fn next(&self) -> Option<Arc<[u8]>> {
        let mut state = self.lock();
        if state.ready.is_none() {
            state.ready = Some(Instant::now());
            self.changed.notify_all();
        }
        loop {
            if state.closed.is_some() {
                return None;
            }
            if let Some(event) = state.events.pop_front() {
                return Some(event);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn add_response(&self, body: Result<Vec<u8>, Vec<u8>>) -> io::Result<()> {
        let at = Instant::now();
        let mut state = self.lock();
        let sent = state.sent.take().ok_or_else(|| unexpected("a response without an event"))?;
        state.responses.push(Response { took: at - sent, at, body });
        Ok(())
    }

    /// Wakes the benchmark after the last event only: a wake-up for each would disturb the measurement.
    fn notify_after_last(&self) {
        if self.lock().events.is_empty() {
            self.changed.notify_all();
        }
    }
}

fn serve(connection: &TcpStream, shared: &Shared) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(BUFFER, connection);
    let mut writer = BufWriter::with_capacity(BUFFER, connection);
    while let Some(Request { path, body }) = Request::read(&mut reader)? {
        match path.rsplit('/').next() {
            Some("next") => {
                let Some(event) = shared.next() else { return Ok(()) };
                write!(writer, "{}", header(event.len()))?;
                shared.lock().sent = Some(Instant::now());
                writer.write_all(&event)?;
            }
            Some("response") => {
                shared.add_response(Ok(body))?;
                accept(&mut writer)?;
                shared.notify_after_last();
            }
            Some("error") => {
                shared.add_response(Err(body))?;
                accept(&mut writer)?;
                shared.notify_after_last();
            }
            Some(_) | None => return Err(unexpected(&format!("a request for {path}"))),
        }
        writer.flush()?;
    }
    Ok(())
}

fn header(length: usize) -> String {
    let deadline = SystemTime::now() + INVOCATION_TIMEOUT;
    let deadline = deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    format!(
        "HTTP/1.1 200 OK\r\n\
         Content-Type: application/json\r\n\
         Lambda-Runtime-Aws-Request-Id: 8476a536-e9f4-11e8-9739-2dfe598c3fcd\r\n\
         Lambda-Runtime-Deadline-Ms: {deadline}\r\n\
         Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:eu-central-1:123456789012:function:payments\r\n\
         Lambda-Runtime-Trace-Id: Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=0\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

fn accept(writer: &mut impl Write) -> io::Result<()> {
    writer.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n")?;
    writer.write_all(br#"{"status": "OK"}"#)?;
    writer.flush()
}

struct Request {
    path: String,
    body: Vec<u8>,
}

impl Request {
    /// Reads the next request of a connection. `None` at its end.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        // The connection of a killed function may be reset.
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return Ok(None);
        }
        let path = line.split(' ').nth(1).ok_or_else(|| unexpected(&line))?.to_owned();
        let (mut length, mut chunked) = (0, false);
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_| unexpected(&line))?;
            }
            chunked |= name.eq_ignore_ascii_case("transfer-encoding");
        }
        let body = if chunked { read_chunks(reader)? } else { read(reader, length)? };
        Ok(Some(Self { path, body }))
    }
}

fn read(reader: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).map_err(|_| unexpected(&line))?;
        body.extend(read(reader, length)?);
        // A chunk ends with an empty line; the body ends with trailers and an empty line.
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        if length == 0 {
            return Ok(body);
        }
    }
}

fn unexpected(what: &str) -> io::Error {
    io::Error::other(format!("unexpected request to the Runtime API: {}", what.trim()))
}
