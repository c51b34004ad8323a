//! Serves the simulated SQS queues over HTTP, and event source mappings of them, until its standard input ends.
//!
//! Prints two addresses: the endpoint of SQS, and that of the mappings. A mapping is called by `POST /poll` with
//! `{"queue": NAME, "reports": BOOL, "timeout": SECONDS}`, which returns the event, and `POST /finish` with `{"queue":
//! NAME, "response": TEXT}`, which applies the function's response to this batch. Without one it has failed.

#![allow(missing_docs, reason = "a tool for the tests of this workspace")]
#![allow(clippy::unwrap_used, reason = "an unexpected error must end the call")]

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::http::{Answer, Request, Server};
use harness::sqs::SqsApi;
use idempotent_sqs_testing::{Invocation, InvocationResult, Mapping, MappingSettings};
use serde_json::Value;

#[derive(Default)]
struct Mappings(Mutex<HashMap<String, Invocation>>);

#[tokio::main]
async fn main() {
    let api = Arc::new(SqsApi::start_empty().await);
    let (shared, mappings) = (Arc::clone(&api), Arc::new(Mappings::default()));
    let server = Server::start(move |request| {
        let (api, mappings) = (Arc::clone(&shared), Arc::clone(&mappings));
        async move { mappings.answer(&api, &request) }
    })
    .await;
    println!("{} http://{}", api.endpoint(), server.address());
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
}

impl Mappings {
    fn answer(&self, api: &SqsApi, request: &Request) -> Answer {
        let input: Value = serde_json::from_slice(&request.body).unwrap();
        let name = input["queue"].as_str().unwrap();
        match request.path.as_str() {
            "/poll" => {
                let queue = api.queue(name).unwrap();
                let settings = MappingSettings {
                    function_timeout: Duration::from_secs(input["timeout"].as_u64().unwrap()),
                    report_batch_item_failures: input["reports"].as_bool().unwrap(),
                    ..MappingSettings::default()
                };
                let invocation = Mapping::new(&queue, settings).poll().unwrap();
                let event = invocation.event();
                self.0.lock().unwrap().insert(name.into(), invocation);
                Answer::with(200, &[], event.as_bytes())
            }
            "/finish" => {
                let invocation = self.0.lock().unwrap().remove(name).unwrap();
                let response = input["response"].as_str();
                let result = response.map_or(InvocationResult::Failed, |text| InvocationResult::Returned(text.into()));
                invocation.finish(result);
                Answer::status(200)
            }
            _ => Answer::status(404),
        }
    }
}
