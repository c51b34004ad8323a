//! An OpenTelemetry collector that receives traces over HTTP.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message;
use tokio::time::sleep;

use super::http::{Answer, Request, Server};

pub struct Collector {
    server: Server,
    requests: Arc<Mutex<Vec<Sent>>>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: SystemTime,
    /// The attributes of its resource.
    pub resource: Vec<KeyValue>,
    pub spans: Vec<Span>,
}

impl Collector {
    pub async fn start() -> Self {
        Self::with_delays(|_| Duration::ZERO).await
    }

    /// A collector that answers the request of this number, from 1, after this time.
    pub async fn with_delays(delay: fn(usize) -> Duration) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (received, number) = (Arc::clone(&requests), Arc::new(AtomicUsize::new(1)));
        let server = Server::start(move |request: Request| {
            assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/traces"));
            assert_eq!(request.header("Content-Type"), Some("application/x-protobuf"));
            let request = ExportTraceServiceRequest::decode(request.body.as_slice()).unwrap();
            received.lock().unwrap().extend(request.resource_spans.into_iter().map(sent));
            let delay = delay(number.fetch_add(1, Ordering::SeqCst));
            async move {
                sleep(delay).await;
                Answer::with(200, &[("Content-Type", "application/x-protobuf")], b"")
            }
        })
        .await;
        Self { server, requests }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub fn sent(&self) -> Vec<Sent> {
        self.requests.lock().unwrap().clone()
    }

    /// The spans of all requests.
    pub fn spans(&self) -> Vec<Span> {
        self.sent().into_iter().flat_map(|sent| sent.spans).collect()
    }
}

fn sent(resource: ResourceSpans) -> Sent {
    let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans).collect();
    Sent { at: SystemTime::now(), resource: resource.resource.unwrap().attributes, spans }
}

/// The value of an attribute, which is a text or a number.
pub fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = &attributes.iter().find(|attribute| attribute.key == name)?.value.as_ref()?.value;
    match value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}
