//! A Lambda Runtime API on loopback, as thin as it can be: what it costs is added to every figure.
//! The thread of a connection hands out an event and takes the time until its answer is in; no
//! other thread has a part in that.
//!
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The time that an invocation has by its headers: what a function with a long timeout has.
const TIMEOUT: Duration = Duration::from_secs(300);

/// An event smaller than this, in bytes, is sent together with its head.
const BUFFER: usize = 64 * 1024;

/// One function's side of Lambda.
pub(crate) struct RuntimeApi {
    address: SocketAddr,
    desk: Arc<Desk>,
}

/// An invocation that is over.
pub(crate) struct Answer {
    /// From the event's first byte to the answer's last.
    pub(crate) took: Duration,
    /// When the answer was in.
    pub(crate) at: Instant,
    /// What was answered, or the error.
    pub(crate) body: Result<Vec<u8>, Vec<u8>>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// When the function first asked for an event.
    ready: Option<Instant>,
    events: VecDeque<Arc<[u8]>>,
    handed_out: Option<Instant>,
    answers: Vec<Answer>,
    /// What went wrong on a connection, or that nobody needs them any more.
    closed: Option<String>,
}

impl RuntimeApi {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let desk = Arc::new(Desk::default());
        let known = Arc::clone(&desk);
        thread::spawn(move || {
            for connection in listener.incoming() {
                if known.lock().closed.is_some() {
                    return;
                }
                let desk = Arc::clone(&known);
                thread::spawn(move || {
                    if let Err(error) = connection.and_then(|connection| serve(&connection, &desk)) {
                        desk.close(&error.to_string());
                    }
                });
            }
        });
        Ok(Self { address, desk })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// When the function first asked for an event, or what went wrong; `None` where it has not yet.
    pub(crate) fn ready(&self, patience: Duration) -> Result<Option<Instant>, String> {
        self.desk.wait(patience, |state| state.ready)
    }

    /// Hand out these events, one after another.
    pub(crate) fn invoke(&self, events: &[Arc<[u8]>]) {
        let mut state = self.desk.lock();
        state.events.extend(events.iter().cloned());
        state.answers.reserve(events.len());
        self.desk.changed.notify_all();
    }

    /// The answers to so many events, or what went wrong; `None` where they are not all in yet.
    pub(crate) fn answers(&self, count: usize, patience: Duration) -> Result<Option<Vec<Answer>>, String> {
        self.desk.wait(patience, |state| (state.answers.len() >= count).then(|| std::mem::take(&mut state.answers)))
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.desk.close("the function was stopped");
        // The listener looks up when somebody calls.
        let _ = TcpStream::connect(self.address);
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, reason: &str) {
        self.lock().closed.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }

    fn wait<T>(&self, patience: Duration, mut found: impl FnMut(&mut State) -> Option<T>) -> Result<Option<T>, String> {
        let until = Instant::now() + patience;
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

    /// The next event, once there is one; `None` when nobody needs its answer any more.
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

    fn answered(&self, body: Result<Vec<u8>, Vec<u8>>) -> io::Result<()> {
        let at = Instant::now();
        let mut state = self.lock();
        let handed_out = state.handed_out.take().ok_or_else(|| strange("an answer to nothing"))?;
        state.answers.push(Answer { took: at - handed_out, at, body });
        Ok(())
    }

    fn call_driver(&self) {
        // It waits for the last answer of many, and must not be woken for each.
        if self.lock().events.is_empty() {
            self.changed.notify_all();
        }
    }
}

fn serve(connection: &TcpStream, desk: &Desk) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(BUFFER, connection);
    let mut writer = BufWriter::with_capacity(BUFFER, connection);
    while let Some(Request { path, body }) = Request::read(&mut reader)? {
        match path.rsplit('/').next() {
            Some("next") => {
                let Some(event) = desk.next() else { return Ok(()) };
                write!(writer, "{}", head(event.len()))?;
                desk.lock().handed_out = Some(Instant::now());
                writer.write_all(&event)?;
            }
            Some("response") => {
                desk.answered(Ok(body))?;
                accept(&mut writer)?;
                desk.call_driver();
            }
            Some("error") => {
                desk.answered(Err(body))?;
                accept(&mut writer)?;
                desk.call_driver();
            }
            Some(_) | None => return Err(strange(&format!("a request for {path}"))),
        }
        writer.flush()?;
    }
    Ok(())
}

fn head(length: usize) -> String {
    let deadline = SystemTime::now() + TIMEOUT;
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
    /// The next request of a connection; `None` where it has ended.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        // A killed function's connection may be reset.
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return Ok(None);
        }
        let path = line.split(' ').nth(1).ok_or_else(|| strange(&line))?.to_owned();
        let (mut length, mut chunked) = (0, false);
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_| strange(&line))?;
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
        let length = usize::from_str_radix(line.trim(), 16).map_err(|_| strange(&line))?;
        body.extend(read(reader, length)?);
        // A chunk ends with an empty line, and so does the body, after its trailers.
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        if length == 0 {
            return Ok(body);
        }
    }
}

fn strange(what: &str) -> io::Error {
    io::Error::other(format!("not of the Runtime API: {}", what.trim()))
}
