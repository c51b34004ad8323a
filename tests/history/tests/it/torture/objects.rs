//! An S3 server that answers the requests for each object as its plan says, and records every request.
//!
//! - `plan`: the objects and their answers

mod plan;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::http::{Answer, Request, Server, TOKEN};
use harness::sigv4::signer;
use harness::torture::tally::lock;
use history::{ObjectCall, ReusedConnection, monotonic_us};
use tokio::time::sleep;

pub(super) use plan::{LIMIT, Name, PLANS, Plan, Reply, Text};

use super::messages::Message;
use super::receiver::{Receiver, decoded};

/// A payload in S3.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) bucket: &'static str,
    pub(super) name: String,
    pub(super) text: String,
    pub(super) plan: &'static Plan,
    /// The attribute of its message that says that the body is a pointer.
    pub(super) attribute: &'static str,
}

impl Stored {
    /// Bucket and name.
    pub(super) fn object(&self) -> String {
        format!("{}/{}", self.bucket, self.name)
    }
}

pub(super) struct Objects {
    server: Server,
    calls: Arc<Mutex<Vec<ObjectCall>>>,
    reused_connections: Arc<Mutex<Vec<ReusedConnection>>>,
}

const NOT_SIGNED: Reply = Reply::Error(403, "SignatureDoesNotMatch");

/// Longer than an invocation.
const SILENCE: Duration = Duration::from_secs(3);

impl Objects {
    /// Serves the payloads of these messages, with what their work has done at this webhook.
    pub(super) async fn start(messages: &[Message], webhook: &Receiver) -> Self {
        let stored = messages.iter().filter_map(|message| Some((message.stored.clone()?, message.key.clone())));
        let stored: Arc<HashMap<_, _>> = Arc::new(stored.map(|stored| (stored.0.object(), stored)).collect());
        let calls: Arc<Mutex<Vec<ObjectCall>>> = Arc::default();
        let reused_connections: Arc<Mutex<Vec<ReusedConnection>>> = Arc::default();
        let (all, reused, effects) = (Arc::clone(&calls), Arc::clone(&reused_connections), webhook.effects());
        let server = Server::start(move |request: Request| {
            let at_us = monotonic_us();
            let idle_us = request.idle.map(|idle| u64::try_from(idle.as_micros()).unwrap());
            lock(&reused).extend(idle_us.map(|idle_us| ReusedConnection { server: "S3".to_owned(), at_us, idle_us }));
            let process = process(&request);
            let object = decoded(&request.path[1..]);
            let mut known = lock(&all);
            let (reply, text) = match stored.get(&object) {
                Some(_) if process.is_none() => (NOT_SIGNED, String::new()),
                Some((Stored { text, plan, .. }, key)) => {
                    let before = known.iter().filter(|call| call.object == object).count();
                    (plan.reply(before, effects(key)), text.clone())
                }
                // Whatever else it is, it exists.
                None => (Reply::Whole, "the payload of another message".to_owned()),
            };
            known.push(ObjectCall { object, process, at_us, answer: reply.answer() });
            drop(known);
            let host = request.header("Host").unwrap().to_owned();
            async move { reply.send(&text, &host).await }
        })
        .await;
        Self { server, calls, reused_connections }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub(super) fn calls(&self) -> Vec<ObjectCall> {
        lock(&self.calls).clone()
    }

    pub(super) fn reused_connections(&self) -> Vec<ReusedConnection> {
        lock(&self.reused_connections).clone()
    }
}

/// The number of the process that signed this request.
fn process(request: &Request) -> Option<usize> {
    let (access_key, scope) = signer(request, "test")?;
    let number = access_key.strip_prefix("process-").filter(|_| scope.ends_with("/eu-central-1/s3/aws4_request"))?;
    number.parse().ok()
}

impl Reply {
    async fn send(self, text: &str, host: &str) -> Answer {
        let too_large = "x".repeat(LIMIT + 1);
        match self {
            Self::Whole | Self::DeletedOnceDone => Answer::with(200, &[], text.as_bytes()),
            Self::Chunked => Answer::Whole(chunked(text)),
            Self::UntilClosed => Answer::Cut(format!("HTTP/1.1 200 OK\r\n\r\n{text}").into_bytes()),
            Self::NotText => Answer::with(200, &[], &[text.as_bytes(), &[0xff]].concat()),
            Self::TooLarge => Answer::with(200, &[], too_large.as_bytes()),
            Self::TooLargeInChunks => Answer::Whole(chunked(&too_large)),
            Self::Endless => Answer::Dripping(format!("HTTP/1.1 200 OK\r\n\r\n{too_large}").into_bytes()),
            Self::Slow => Answer::Dripping(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", LIMIT + 1).into()),
            Self::CutOff => {
                Answer::Cut(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len() + 1).into_bytes())
            }
            Self::CutOffInChunks => {
                let mut bytes = chunked(text);
                bytes.truncate(bytes.len() - "0\r\n\r\n".len());
                Answer::Cut(bytes)
            }
            Self::Error(status, code) => error(status, code, &[]),
            Self::DeleteMarker => Answer::with(404, &[("x-amz-delete-marker", "true")], b""),
            Self::Redirect(status) => {
                let location = format!("http://{host}/secrets/{status}");
                error(status, "TemporaryRedirect", &[("Location", &location)])
            }
            Self::Reset => Answer::Reset,
            Self::HalfAHead => Answer::Cut(b"HTTP/1.1 200".to_vec()),
            Self::Silent => {
                sleep(SILENCE).await;
                Answer::Reset
            }
        }
    }
}

/// The first byte of the text, and the rest of it.
fn chunked(text: &str) -> Vec<u8> {
    let mut bytes = String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let (start, rest) = text.split_at(text.len().min(1));
    for part in [start, rest].into_iter().filter(|part| !part.is_empty()) {
        write!(bytes, "{:x}\r\n{part}\r\n", part.len()).unwrap();
    }
    (bytes + "0\r\n\r\n").into_bytes()
}

/// An error of S3, which names the object.
fn error(status: u16, code: &str, headers: &[(&str, &str)]) -> Answer {
    let body = format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Key>payment-{TOKEN}</Key></Error>");
    Answer::with(status, &[&[("Content-Type", "application/xml")], headers].concat(), body.as_bytes())
}
