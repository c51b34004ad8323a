//! SQS as the program reaches it: the AWS SDK calls a host that refuses calls, is slow, hangs, and loses replies.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::http::{HttpRequest, HttpResponse};
use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::result::ConnectorError;
use harness::sqs::{Call, reply, run};
use history::Rng;
use idempotent_sqs_testing::{Queue, SqsError};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::lock;
use crate::sqs::endpoint;
use crate::trace::event;

/// The queues of an account, and the calls of one program. Clones share it.
#[derive(Clone, Debug)]
pub struct Host(Arc<State>);

#[derive(Debug)]
struct State {
    queues: Vec<Queue>,
    rates: Rates,
    rng: Mutex<Rng>,
    calls: Mutex<Vec<HostCall>>,
}

/// How many of 1000 calls have a fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// They are refused, are slow, hang, or have no reply.
    pub faults: u64,
    /// Sends are refused.
    pub refusals: u64,
    /// An entry of a change of visibility timeouts fails, and the others take effect.
    pub failed_entries: u64,
}

/// A request of the SDK. A call that is repeated has several.
#[derive(Clone, Debug)]
pub struct HostCall {
    pub action: String,
    pub input: Value,
    pub began: Instant,
    /// When it took effect, and its output.
    pub effect: Option<(Instant, Value)>,
    /// What its reply says, if the program has one. `None` also for an internal failure.
    pub reply: Option<Reply>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Accepted,
    Refused,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Throttled,
    InternalFailure,
    /// It has no effect and no reply.
    HoldRequest,
    /// It takes effect after this time, also if the program does not wait for it.
    Slow(Duration),
    /// It takes effect, and the connection is closed without a reply.
    LoseReply,
    /// It takes effect and has no reply.
    HoldReply,
    FailEntry,
    AccessDenied,
}

impl Host {
    pub fn new(queues: Vec<Queue>, rates: Rates, rng: Rng) -> Self {
        Self(Arc::new(State { queues, rates, rng: Mutex::new(rng), calls: Mutex::default() }))
    }

    pub fn calls(&self) -> Vec<HostCall> {
        lock(&self.0.calls).clone()
    }

    /// The configuration of the SDK of the program. The regions of the queues are not all its own.
    pub fn config(&self) -> SdkConfig {
        let connector = SharedHttpConnector::new(self.clone());
        let credentials = Credentials::new("id", "secret", None, None, "simulation");
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(http_client_fn(move |_settings, _components| connector.clone()))
            .build()
    }

    async fn answer(self, region: String, call: Call) -> Result<HttpResponse, ConnectorError> {
        let (number, fault) = (self.record(&call), self.fault(&call.action));
        event(|| format!("letters: {} {} in {region}, fault {fault:?}", call.action, call.input));
        let output = match fault {
            Some(Fault::Throttled) => Err(SqsError { code: "RequestThrottled", reason: "Too many requests." }),
            Some(Fault::InternalFailure) => {
                return response(500, &json!({ "__type": "com.amazonaws.sqs#InternalFailure" }));
            }
            Some(Fault::AccessDenied) => Err(SqsError { code: "AccessDenied", reason: "It is not authorized." }),
            Some(Fault::HoldRequest) => pending().await,
            Some(Fault::Slow(_) | Fault::LoseReply | Fault::HoldReply | Fault::FailEntry) | None => {
                let host = self.clone();
                let effect = tokio::spawn(async move {
                    if let Some(Fault::Slow(delay)) = fault {
                        sleep(delay).await;
                    }
                    host.run(number, &region, call, matches!(fault, Some(Fault::FailEntry))).await
                });
                effect.await.map_err(|error| ConnectorError::other(error.into(), None))?
            }
        };
        match fault {
            Some(Fault::LoseReply) => return Err(ConnectorError::io("the connection was closed".into())),
            Some(Fault::HoldReply) => return pending().await,
            _ => {}
        }
        let is = if output.is_ok() { Reply::Accepted } else { Reply::Refused };
        lock(&self.0.calls)[number].reply = Some(is);
        let (status, body) = reply(output);
        response(status, &body)
    }

    fn record(&self, Call { action, input }: &Call) -> usize {
        let mut calls = lock(&self.0.calls);
        let (action, input, began) = (action.clone(), input.clone(), Instant::now());
        calls.push(HostCall { action, input, began, effect: None, reply: None });
        calls.len() - 1
    }

    /// A call reaches the queues of its region. `fails`: its first entry fails, if it is a batch.
    async fn run(&self, number: usize, region: &str, mut call: Call, fails: bool) -> Result<Value, SqsError> {
        let queues = self.0.queues.iter().filter(|queue| queue.settings().region == region);
        let failed = call.input["Entries"].as_array_mut().filter(|entries| fails && entries.len() > 1);
        let failed = failed.map(|entries| entries.remove(0));
        let mut output = run(&queues.cloned().collect::<Vec<_>>(), &call, Duration::from_secs(1)).await;
        if let (Ok(output), Some(entry)) = (&mut output, failed)
            && let Some(failed) = output["Failed"].as_array_mut()
        {
            failed.push(json!({ "Id": entry["Id"], "Code": "InternalError", "Message": "", "SenderFault": false }));
        }
        if let Ok(output) = &output {
            lock(&self.0.calls)[number].effect = Some((Instant::now(), output.clone()));
        }
        output
    }

    fn fault(&self, action: &str) -> Option<Fault> {
        let mut rng = lock(&self.0.rng);
        if action == "SendMessage" && rng.happens(self.0.rates.refusals) {
            return Some(Fault::AccessDenied);
        }
        if action == "ChangeMessageVisibilityBatch" && rng.happens(self.0.rates.failed_entries) {
            return Some(Fault::FailEntry);
        }
        rng.happens(self.0.rates.faults).then(|| match rng.draw(0..6) {
            0 => Fault::Throttled,
            1 => Fault::InternalFailure,
            2 => Fault::HoldRequest,
            3 => Fault::Slow(rng.ms(100..20_000)),
            4 => Fault::LoseReply,
            _ => Fault::HoldReply,
        })
    }
}

impl HttpConnector for Host {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let action = target.strip_prefix("AmazonSQS.").unwrap_or_default().to_owned();
        let input = serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        let (_host, region) = endpoint(&request);
        HttpConnectorFuture::new(self.clone().answer(region, Call { action, input }))
    }
}

fn response(status: u16, body: &Value) -> Result<HttpResponse, ConnectorError> {
    let status = status.try_into().map_err(|error| ConnectorError::other(Box::new(error), None))?;
    Ok(HttpResponse::new(status, body.to_string().into()))
}
