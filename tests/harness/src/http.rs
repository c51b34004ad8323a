//! HTTP servers on loopback whose responses a test controls, including bytes and connections: a webhook, and the API
//! of SQS that the function calls.

mod server;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::soon;

pub use server::{NewConnections, Server, fill_queue};

/// Part of the URL of every webhook.
pub const TOKEN: &str = "SECRET-TOKEN";

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// How long its connection was idle since the last response.
    pub idle: Option<Duration>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.header(name).map(|value| value.parse().unwrap())
    }

    async fn read(connection: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if connection.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let mut words = head.first()?.split(' ').map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let headers = head[1..].iter().filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut request = Self { method, path, headers, body: Vec::new(), idle: None };
        assert_eq!(request.header("Transfer-Encoding"), None, "clients send a Content-Length");
        request.body = vec![0; request.header("Content-Length").map_or(0, |length| length.parse().unwrap())];
        connection.read_exact(&mut request.body).await.ok()?;
        Some(request)
    }
}

/// The response to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These bytes. The connection stays open.
    Whole(Vec<u8>),
    /// These bytes, then the connection is closed.
    Cut(Vec<u8>),
    /// These bytes, then another byte every 20 ms for as long as the client reads.
    Dripping(Vec<u8>),
    /// The connection is reset.
    Reset,
    /// No response, until the test sets another one.
    Held,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self::with(status, &[], b"")
    }

    pub fn with(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut head = format!("HTTP/1.1 {status} Scripted\r\n");
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        if status != 204 {
            head.extend(["Content-Length: ", &body.len().to_string(), "\r\n"]);
        }
        head.push_str("\r\n");
        Self::Whole([head.as_bytes(), body].concat())
    }
}

/// A webhook. It responds with 200 by default.
pub struct Webhook {
    server: Server,
    script: Arc<watch::Sender<Script>>,
    calls: Arc<watch::Sender<Vec<Request>>>,
}

struct Script {
    answer: Answer,
    by_key: HashMap<String, Answer>,
}

impl Script {
    fn answer(&self, request: &Request) -> &Answer {
        let own = request.header("Idempotency-Key").and_then(|key| self.by_key.get(key));
        own.unwrap_or(&self.answer)
    }
}

impl Webhook {
    pub async fn start() -> Self {
        let script = Script { answer: Answer::status(200), by_key: HashMap::new() };
        let script = Arc::new(watch::Sender::new(script));
        let calls = Arc::new(watch::Sender::new(Vec::new()));
        let state = (Arc::clone(&script), Arc::clone(&calls));
        let server = Server::start(move |request: Request| {
            let (script, calls) = state.clone();
            async move {
                calls.send_modify(|calls| calls.push(request.clone()));
                let mut script = script.subscribe();
                let told = script.wait_for(|script| !matches!(script.answer(&request), Answer::Held)).await;
                told.map_or(Answer::Held, |script| script.answer(&request).clone())
            }
        })
        .await;
        Self { server, script, calls }
    }

    /// Its URL, which contains a token.
    pub fn url(&self) -> String {
        format!("http://{}/hook?token={TOKEN}", self.server.address())
    }

    /// Sets the response to all requests, also to those that are held.
    pub fn respond(&self, answer: Answer) {
        self.script.send_modify(|script| script.answer = answer);
    }

    /// Sets the response to requests with this key.
    pub fn respond_for(&self, key: &str, answer: Answer) {
        self.script.send_modify(|script| drop(script.by_key.insert(key.to_owned(), answer)));
    }

    /// Waits for this number of requests, and returns them.
    pub async fn called(&self, times: usize) -> Vec<Request> {
        let mut calls = self.calls.subscribe();
        soon(calls.wait_for(|calls| calls.len() >= times)).await.unwrap().clone()
    }

    pub fn calls(&self) -> Vec<Request> {
        self.calls.borrow().clone()
    }

    /// Number of requests with this key.
    pub fn calls_for(&self, key: &str) -> usize {
        self.calls.borrow().iter().filter(|call| call.header("Idempotency-Key") == Some(key)).count()
    }

    pub fn last_call(&self) -> Request {
        self.calls.borrow().last().cloned().expect("the webhook was called")
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Closes every connection. The server keeps listening.
    pub async fn close_connections(&self) {
        self.server.close_connections().await;
    }

    /// Answers the next byte on every open connection with a reset, as a peer that has restarted.
    pub fn reset_connections(&self) {
        self.server.reset_connections();
    }
}

/// The API of SQS: `ChangeMessageVisibilityBatch` and `SendMessage`.
pub struct Sqs {
    server: Server,
    calls: Arc<Mutex<Vec<Value>>>,
    sends: Arc<watch::Sender<Sends>>,
}

/// The calls of `SendMessage`, and what happens to the next ones.
#[derive(Default)]
struct Sends {
    calls: Vec<Value>,
    refused: bool,
    held: bool,
    failing: bool,
}

impl Sqs {
    pub async fn start() -> Self {
        Self::start_with(|entries| {
            let done: Vec<_> = entries.iter().map(|entry| json!({ "Id": entry["Id"] })).collect();
            Answer::with(200, JSON_1_0, json!({ "Successful": done, "Failed": [] }).to_string().as_bytes())
        })
        .await
    }

    /// A server that reports a failure for each entry.
    pub async fn start_failing() -> Self {
        Self::start_with(|entries| {
            let refused =
                |entry: &Value| json!({ "Id": entry["Id"], "SenderFault": true, "Code": "InvalidParameterValue" });
            let failed: Vec<_> = entries.iter().map(refused).collect();
            Answer::with(200, JSON_1_0, json!({ "Successful": [], "Failed": failed }).to_string().as_bytes())
        })
        .await
    }

    /// A server that rejects every call, as if the function's role lacked the permission.
    pub async fn start_refusing() -> Self {
        Self::start_with(|_| {
            Answer::with(403, JSON_1_0, br#"{"__type":"com.amazon.coral.service#AccessDeniedException"}"#)
        })
        .await
    }

    /// A server that does not reply to changes of visibility timeouts.
    pub async fn start_silent() -> Self {
        Self::start_with(|_| Answer::Held).await
    }

    /// Rejects each further send.
    pub fn refuse_sends(&self, refused: bool) {
        self.sends.send_modify(|sends| sends.refused = refused);
    }

    /// Does not respond to further sends while this is set. They take effect.
    pub fn hold_sends(&self, held: bool) {
        self.sends.send_modify(|sends| sends.held = held);
    }

    /// Answers further sends with 500, although they take effect.
    pub fn fail_sends(&self, failing: bool) {
        self.sends.send_modify(|sends| sends.failing = failing);
    }

    /// The messages that were sent so far.
    pub fn sent(&self) -> Vec<Value> {
        self.sends.borrow().calls.clone()
    }

    /// Waits until this many messages were sent.
    pub async fn until_sent(&self, number: usize) {
        soon(self.sends.subscribe().wait_for(|sends| sends.calls.len() >= number)).await.unwrap();
    }

    async fn start_with(answer: fn(&[Value]) -> Answer) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let sends = Arc::new(watch::Sender::new(Sends::default()));
        let (known, known_sends) = (Arc::clone(&calls), Arc::clone(&sends));
        let server = Server::start(move |request: Request| {
            let call: Value = serde_json::from_slice(&request.body).unwrap();
            let sends = Arc::clone(&known_sends);
            let changed = match request.header("X-Amz-Target") {
                Some("AmazonSQS.ChangeMessageVisibilityBatch") => {
                    let answer = answer(call["Entries"].as_array().unwrap());
                    known.lock().unwrap().push(call.clone());
                    Some(answer)
                }
                Some("AmazonSQS.SendMessage") => None,
                other => panic!("{other:?}"),
            };
            async move {
                match changed {
                    Some(Answer::Held) => std::future::pending().await,
                    Some(answer) => answer,
                    None => send(&sends, call).await,
                }
            }
        })
        .await;
        Self { server, calls, sends }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The calls since the last `take`, in order.
    pub fn take_calls(&self) -> Vec<Value> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// The visibility timeouts since the last `take`, in seconds by receipt handle.
    pub fn take(&self) -> HashMap<String, u64> {
        let entries = |call: Value| call["Entries"].as_array().unwrap().clone();
        let asked = self.take_calls().into_iter().flat_map(entries);
        asked
            .map(|entry| {
                (entry["ReceiptHandle"].as_str().unwrap().to_owned(), entry["VisibilityTimeout"].as_u64().unwrap())
            })
            .collect()
    }
}

/// `SendMessage`: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
async fn send(sends: &watch::Sender<Sends>, call: Value) -> Answer {
    if sends.borrow().refused {
        return Answer::with(403, JSON_1_0, br#"{"__type":"com.amazon.coral.service#AccessDeniedException"}"#);
    }
    sends.send_modify(|sends| sends.calls.push(call));
    sends.subscribe().wait_for(|sends| !sends.held).await.unwrap();
    if sends.borrow().failing {
        return Answer::with(500, JSON_1_0, br#"{"__type":"com.amazon.coral.service#InternalFailure"}"#);
    }
    Answer::with(200, JSON_1_0, br#"{"MessageId":"219f8380-5770-4cc2-8c3e-5c715e145f5e"}"#)
}

const JSON_1_0: &[(&str, &str)] = &[("Content-Type", "application/x-amz-json-1.0")];
