//! The requests of one measurement, sent by many clients at once.

use std::time::{Duration, Instant};

use benches::Fallible;
use futures_util::future::try_join_all;

use crate::endpoint::Endpoint;
use crate::load::Connection;

/// The length of a measurement.
const TIME: Duration = Duration::from_millis(250);

/// The last clients may still be busy at the end of the time.
const TIMEOUT: Duration = Duration::from_secs(30);

const BODY: &str = r#"{"amount":1250,"currency":"EUR"}"#;

/// Which requests have the same key.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Keys {
    /// No two.
    Own,
    /// Those that all clients send at once. When all are answered, they send the next key.
    Hot,
    /// All. The first one is completed before the others are sent.
    Completed,
}

/// The answers of a measurement.
#[derive(Default)]
pub(crate) struct Answers {
    /// Milliseconds of each request.
    pub(crate) times: Vec<f64>,
    /// Number of answers 409: a request with the same key is running.
    pub(crate) conflicts: usize,
    /// Number of keys.
    pub(crate) keys: usize,
    pub(crate) wall: Duration,
}

impl Answers {
    fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.conflicts += other.conflicts;
        self.keys += other.keys;
    }
}

/// Sends requests from this many clients for about [`TIME`]. No other measurement may have the same `label`.
pub(crate) async fn send(
    endpoint: &mut Endpoint,
    keys: Keys,
    work_ms: u32,
    clients: usize,
    label: &str,
) -> Fallible<Answers> {
    let connections = &mut endpoint.connections[..clients];
    let requests = send_from(connections, keys, work_ms, label);
    let answers = tokio::time::timeout(TIMEOUT, requests).await.map_err(|_| "timeout".into()).flatten();
    answers.map_err(|error| format!("{}, {clients} clients: {error}", endpoint.kind.name).into())
}

async fn send_from(clients: &mut [Connection], keys: Keys, work_ms: u32, label: &str) -> Fallible<Answers> {
    let mut answers = Answers::default();
    let start = Instant::now();
    match keys {
        Keys::Own => {
            answers = from_all(clients, async |client, connection| {
                let mut answers = Answers::default();
                while start.elapsed() < TIME {
                    let request = request(client, work_ms, &format!("{label}-{client}-{}", answers.keys));
                    exchange(connection, &request, &mut answers).await?;
                    answers.keys += 1;
                }
                Ok(answers)
            })
            .await?;
        }
        Keys::Hot => {
            while start.elapsed() < TIME {
                let request = request(0, work_ms, &format!("{label}-{}", answers.keys));
                let round = from_all(clients, async |_, connection| {
                    let mut answers = Answers::default();
                    exchange(connection, &request, &mut answers).await?;
                    Ok(answers)
                });
                answers.add(round.await?);
                answers.keys += 1;
            }
        }
        Keys::Completed => {
            let request = request(0, work_ms, label);
            exchange(&mut clients[0], &request, &mut answers).await?;
            answers.keys += 1;
            let replays = from_all(clients, async |_, connection| {
                let mut answers = Answers::default();
                while start.elapsed() < TIME {
                    exchange(connection, &request, &mut answers).await?;
                }
                Ok(answers)
            });
            answers.add(replays.await?);
        }
    }
    answers.wall = start.elapsed();
    Ok(answers)
}

/// Runs `send` for all clients at once, which are numbered from 0.
async fn from_all(
    clients: &mut [Connection],
    send: impl AsyncFn(usize, &mut Connection) -> Fallible<Answers>,
) -> Fallible<Answers> {
    let mut all = Answers::default();
    for answers in try_join_all(clients.iter_mut().enumerate().map(|(client, one)| send(client, one))).await? {
        all.add(answers);
    }
    Ok(all)
}

/// A request of this client, as bytes. The session is that of the client too.
fn request(client: usize, work_ms: u32, key: &str) -> Vec<u8> {
    let length = BODY.len();
    format!(
        "POST /payments/{work_ms} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {client}\r\n\
         cookie: session={client:021}A\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         idempotency-key: {key}\r\n\r\n{BODY}"
    )
    .into_bytes()
}

/// Sends a request and records its answer.
async fn exchange(connection: &mut Connection, request: &[u8], answers: &mut Answers) -> Fallible<()> {
    let begin = Instant::now();
    let (status, body) = connection.send(request).await?;
    answers.times.push(begin.elapsed().as_secs_f64() * 1e3);
    match status {
        201 => {}
        409 => answers.conflicts += 1,
        _ => return Err(format!("unexpected response {status}: {}", body.escape_ascii()).into()),
    }
    Ok(())
}
