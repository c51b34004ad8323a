//! The API of SQS over HTTP, with the AWS JSON 1.0 protocol, on simulated queues. Reports calls, and fails or holds
//! them on request.
//!
//! <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_Operations.html>,
//! <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-json-api-responses.html>

mod actions;
mod queues;

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use actions::run;
use idempotent_sqs_testing::{Queue, SqsError};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::http::{Answer, Request, Server};
use crate::soon;

/// The environment variables with which an AWS SDK calls this server, apart from `AWS_ENDPOINT_URL_SQS`.
pub const CREDENTIALS: [(&str, &str); 3] =
    [("AWS_REGION", "eu-central-1"), ("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "local")];

/// The API of SQS.
pub struct SqsApi {
    server: Server,
    state: Arc<State>,
}

/// A call of the API.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its name, such as `SendMessage`.
    pub action: String,
    pub input: Value,
}

/// A fault of a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is refused with this error and has no effect. In a batch, every entry fails.
    Refuse(SqsError),
    /// It has no effect and no reply.
    HoldRequest,
    /// It waits for the notification, then takes effect.
    Delay(Arc<Notify>),
    /// It takes effect and has no reply.
    HoldReply,
    /// It takes effect, and the connection is closed without a reply.
    LoseReply,
}

/// The caller lacks a permission.
pub const ACCESS_DENIED: Fault = Fault::Refuse(SqsError {
    code: "AccessDenied",
    reason: "User: operator is not authorized to perform this action.",
});

type Script = dyn FnMut(&Call) -> Option<Fault> + Send;

struct State {
    queues: Mutex<Vec<Queue>>,
    /// Time that a second of `WaitTimeSeconds` takes.
    second: Duration,
    calls: watch::Sender<Vec<Call>>,
    script: Mutex<Box<Script>>,
}

impl SqsApi {
    /// Long polls take a tenth of their time, because tests wait for the end of every scan.
    pub async fn start(queues: &[&Queue]) -> Self {
        Self::with_second(queues, Duration::from_millis(100)).await
    }

    /// Without queues, which the client creates. Long polls take their whole time.
    pub async fn start_empty() -> Self {
        Self::with_second(&[], Duration::from_secs(1)).await
    }

    async fn with_second(queues: &[&Queue], second: Duration) -> Self {
        let queues = Mutex::new(queues.iter().map(|queue| (*queue).clone()).collect());
        let script: Mutex<Box<Script>> = Mutex::new(Box::new(|_| None));
        let state = Arc::new(State { queues, second, calls: watch::Sender::default(), script });
        let shared = Arc::clone(&state);
        let server = Server::start(move |request: Request| {
            let state = Arc::clone(&shared);
            async move { state.answer(&request).await }
        })
        .await;
        Self { server, state }
    }

    /// The value of `AWS_ENDPOINT_URL_SQS`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub fn queue_url(&self, queue: &Queue) -> String {
        format!("{}/{}/{}", self.endpoint(), queue.settings().account, queue.settings().name)
    }

    /// The queue with this name.
    pub fn queue(&self, name: &str) -> Option<Queue> {
        self.state.queues.lock().unwrap().iter().find(|queue| queue.settings().name == name).cloned()
    }

    /// Sets which calls fail.
    pub fn fail(&self, script: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        *self.state.script.lock().unwrap() = Box::new(script);
    }

    /// The calls so far of this action.
    pub fn calls(&self, action: &str) -> Vec<Value> {
        inputs(&self.state.calls.borrow(), action)
    }

    /// Waits for this number of calls of the action. A call counts once it has taken effect.
    pub async fn called(&self, action: &str, times: usize) -> Vec<Value> {
        let mut calls = self.state.calls.subscribe();
        let calls = soon(calls.wait_for(|calls| inputs(calls, action).len() >= times)).await.unwrap();
        inputs(&calls, action)
    }
}

fn inputs(calls: &[Call], action: &str) -> Vec<Value> {
    calls.iter().filter(|call| call.action == action).map(|call| call.input.clone()).collect()
}

impl State {
    async fn answer(&self, request: &Request) -> Answer {
        let target = request.header("X-Amz-Target").unwrap_or_default();
        let action = target.strip_prefix("AmazonSQS.").expect("a call of SQS").to_owned();
        let call = Call { action, input: serde_json::from_slice(&request.body).unwrap() };
        let fault = (*self.script.lock().unwrap())(&call);
        let output = match &fault {
            Some(Fault::Refuse(error)) => Err(error.clone()),
            Some(Fault::HoldRequest) => Ok(Value::Null),
            Some(Fault::Delay(over)) => {
                over.notified().await;
                self.run(&call, region_of(request)).await
            }
            Some(Fault::HoldReply | Fault::LoseReply) | None => self.run(&call, region_of(request)).await,
        };
        self.calls.send_modify(|calls| calls.push(call));
        match fault {
            Some(Fault::HoldRequest | Fault::HoldReply) => pending().await,
            Some(Fault::LoseReply) => Answer::Reset,
            Some(Fault::Refuse(_) | Fault::Delay(_)) | None => {
                let (status, body) = reply(output);
                Answer::with(status, JSON, body.to_string().as_bytes())
            }
        }
    }
}

impl State {
    /// A call reaches the queues in its region, and all of them if it is not signed.
    async fn run(&self, call: &Call, region: Option<&str>) -> Result<Value, SqsError> {
        if call.action == "CreateQueue" {
            return queues::create(&mut self.queues.lock().unwrap(), &call.input);
        }
        let mut queues = self.queues.lock().unwrap().clone();
        queues.retain(|queue| region.is_none_or(|region| region == queue.settings().region));
        actions::run(&queues, call, self.second).await
    }
}

/// The region for which the request is signed:
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-authentication-methods.html>
fn region_of(request: &Request) -> Option<&str> {
    let (_algorithm, credential) = request.header("Authorization")?.split_once("Credential=")?;
    credential.split('/').nth(2)
}

const JSON: &[(&str, &str)] = &[("Content-Type", "application/x-amz-json-1.0")];

/// The status and the body of the reply to a call with this output.
pub fn reply(output: Result<Value, SqsError>) -> (u16, Value) {
    let SqsError { code, reason } = match output {
        Ok(output) => return (200, output),
        Err(error) => error,
    };
    let (status, shape) = match code {
        "AccessDenied" => (403, "com.amazon.coral.service#AccessDeniedException".to_owned()),
        code => (400, format!("com.amazonaws.sqs#{code}")),
    };
    (status, json!({ "__type": shape, "message": reason }))
}
