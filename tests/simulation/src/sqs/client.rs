//! The AWS SDK of a process. Its requests are sent over the simulated network, and recorded.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::http::{HttpRequest, HttpResponse};
use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::result::ConnectorError;
use history::monotonic_us;
use idempotent_sqs::aws::AwsConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{NAME, Reply, Sqs};
use crate::lock;
use crate::network::{self, address};

/// A request of the SDK. A call that is repeated has several.
#[derive(Clone, Debug)]
pub struct SdkCall {
    /// The process that sent it, as in the history of its calls.
    pub process: String,
    /// Its host, and the region that it is signed for.
    pub endpoint: (String, String),
    pub action: String,
    pub input: Value,
    /// When it was sent, µs by the monotonic clock.
    pub at_us: u64,
    /// When it had a reply, failed, or was given up.
    pub ended_us: Option<u64>,
}

/// A change of the visibility timeout of a message that the SDK sent.
#[derive(Clone, Debug)]
pub struct VisibilityChange {
    pub receipt_handle: String,
    pub after: Duration,
    /// When, µs by the monotonic clock.
    pub at_us: u64,
}

impl SdkCall {
    /// The changes of visibility timeouts in this call.
    pub fn changes(&self) -> impl Iterator<Item = VisibilityChange> {
        let entries = self.input["Entries"].as_array().filter(|_| self.action == "ChangeMessageVisibilityBatch");
        entries.into_iter().flatten().map(|entry| VisibilityChange {
            receipt_handle: entry["ReceiptHandle"].as_str().unwrap_or_default().to_owned(),
            after: Duration::from_secs(entry["VisibilityTimeout"].as_u64().unwrap_or_default()),
            at_us: self.at_us,
        })
    }
}

impl Sqs {
    /// The configuration of the SDK in this process, which the history of its calls names `recorded`.
    pub fn config(&self, process: &str, recorded: &str) -> AwsConfig {
        let (address, process) = (address(NAME, process), recorded.to_owned());
        let connector = SharedHttpConnector::new(Connector { sqs: self.clone(), address, process });
        let credentials = Credentials::new("id", "secret", None, None, "simulation");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            // That of the queue counts.
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(http_client_fn(move |_settings, _components| connector.clone()));
        config.build().into()
    }
}

/// Sends requests over the simulated network.
struct Connector {
    sqs: Sqs,
    address: String,
    process: String,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("process", &self.process).finish_non_exhaustive()
    }
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let action = target.strip_prefix("AmazonSQS.").unwrap_or_default().to_owned();
        let input = serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        let endpoint = endpoint(&request);
        let (sqs, address, process) = (self.sqs.clone(), self.address.clone(), self.process.clone());
        HttpConnectorFuture::new(async move {
            let sent = sqs.record(process, endpoint, action, input);
            let (status, body, letter) =
                sent.exchange(&address).await.map_err(|error| ConnectorError::io(error.into()))?;
            if let Some(letter) = letter {
                lock(&sqs.0.letters)[letter].is_replied = true;
            }
            let status = status.try_into().map_err(|error| ConnectorError::other(Box::new(error), None))?;
            Ok(HttpResponse::new(status, body.to_string().into()))
        })
    }
}

/// The host of a request, and the region in its signature:
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html>
pub(crate) fn endpoint(request: &HttpRequest) -> (String, String) {
    let host = request.uri().split('/').nth(2).unwrap_or_default();
    let authorization = request.headers().get("authorization").unwrap_or_default();
    let scope = authorization.split_once("Credential=").map_or("", |(_, scope)| scope);
    (host.to_owned(), scope.split('/').nth(2).unwrap_or_default().to_owned())
}

impl Sqs {
    fn record(&self, process: String, endpoint: (String, String), action: String, input: Value) -> Sent<'_> {
        let mut calls = lock(&self.0.calls);
        let number = calls.len();
        let request = format!("{}\n", json!([action, input, number]));
        calls.push(SdkCall { process, endpoint, action, input, at_us: monotonic_us(), ended_us: None });
        Sent { sqs: self, number, request }
    }
}

/// A request that has not ended. It may also be dropped.
struct Sent<'a> {
    sqs: &'a Sqs,
    number: usize,
    /// As the network carries it.
    request: String,
}

impl Sent<'_> {
    async fn exchange(&self, address: &str) -> std::io::Result<Reply> {
        let mut stream = network::connect(address).await?;
        stream.write_all(self.request.as_bytes()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        Ok(serde_json::from_str(&reply)?)
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        lock(&self.sqs.0.calls)[self.number].ended_us = Some(monotonic_us());
    }
}
