//! Spans that are sent to an OpenTelemetry collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::{Span, Status, status::StatusCode};
use serde_json::json;
use tokio::sync::Notify;

use super::{Fixture, NO_FAILURES, pay};
use harness::collector::{Collector, attribute};
use harness::event::{Record, event};
use harness::http::{Answer, Request, Server};
use harness::redis::closed_port;
use harness::until;

/// The trace ID of the Runtime API's header.
const LAMBDA_TRACE: u128 = 0x5bef_4de7_ad49_b0e8_7f6e_f6c8_7fc2_e700;

fn trace(span_or_link: &[u8]) -> u128 {
    u128::from_be_bytes(span_or_link.try_into().unwrap())
}

fn span(span_or_link: &[u8]) -> u64 {
    u64::from_be_bytes(span_or_link.try_into().unwrap())
}

/// The span of the invocation, and the spans of the messages with these IDs.
fn invocation_and_messages(spans: &[Span], messages: [&str; 3]) -> (Span, [Span; 3]) {
    let invocation = spans.iter().find(|span| span.name == "invocation").expect("the invocation has a span").clone();
    let of = |id: &str| {
        let mut own =
            spans.iter().filter(|span| attribute(&span.attributes, "messaging.message.id").as_deref() == Some(id));
        let span = own.next().unwrap_or_else(|| panic!("{id} has a span")).clone();
        assert!(own.next().is_none(), "{id} has one span");
        span
    };
    (invocation, messages.map(of))
}

/// The record, sent in this X-Ray trace.
fn sent_in(record: Record, trace: &str) -> Record {
    let attributes = json!({ "ApproximateReceiveCount": "1", "AWSTraceHeader": trace });
    record.with("attributes", attributes)
}

#[tokio::test]
async fn a_span_of_each_message_is_sent_before_the_response_and_linked_to_its_sender() {
    let (fixture, collector) = (Fixture::start().await, Collector::start().await);
    fixture.webhook.respond_for("pay_2", Answer::status(500));
    let function = fixture.function_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]).await;
    let delivered = event([
        sent_in(pay("m1", "pay_1"), "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"),
        pay("m2", "pay_2"),
        sent_in(pay("m3", "pay_3"), "Root=1-odd"),
    ]);
    assert_eq!(function.invoke(delivered).await, ["m2"]);
    // Without a wait, because Lambda may freeze the process after the response.
    let spans = collector.spans();
    assert_eq!(spans.len(), 4, "{spans:#?}");
    let (invocation, messages) = invocation_and_messages(&spans, ["m1", "m2", "m3"]);
    for message in &messages {
        assert_eq!((&message.trace_id, &message.parent_span_id), (&invocation.trace_id, &invocation.span_id));
        assert_eq!(message.name, "process payments");
        assert!(message.start_time_unix_nano >= invocation.start_time_unix_nano);
        assert!(message.end_time_unix_nano <= invocation.end_time_unix_nano);
    }
    let links = messages.each_ref().map(|message| {
        message.links.iter().map(|link| (trace(&link.trace_id), span(&link.span_id))).collect::<Vec<_>>()
    });
    assert_eq!(links, [vec![(0x5759_e988_bd86_2e3f_e1be_46a9_9427_2793, 0x5399_5c3f_42cd_8ad8)], vec![], vec![]]);
    let states = messages.each_ref().map(|message| message.status.as_ref().map_or(StatusCode::Unset, Status::code));
    assert_eq!(states, [StatusCode::Unset, StatusCode::Error, StatusCode::Unset]);
    let message_attribute = |name| attribute(&messages[0].attributes, name);
    assert_eq!(message_attribute("idempotency.outcome").as_deref(), Some("ACQUIRED"));
    assert_eq!(message_attribute("idempotency.key").as_deref(), Some("pay_1"));
    assert_eq!(message_attribute("idempotency.attempt").as_deref(), Some("1"));
    assert_eq!(attribute(&invocation.attributes, "faas.invocation_id").as_deref(), Some("request-0"));
    assert_eq!(trace(&invocation.links[0].trace_id), LAMBDA_TRACE);
    assert!(invocation.parent_span_id.is_empty());
    assert_eq!(attribute(&collector.sent()[0].resource, "service.name").as_deref(), Some("payments"));
}

#[tokio::test]
async fn the_standard_variables_control_the_export_and_the_trace() {
    let (fixture, collector) = (Fixture::start().await, Collector::start().await);
    let url = format!("{}/v1/traces", collector.url());
    let to = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url.as_str());
    let xray = ("OTEL_PROPAGATORS", "tracecontext,xray");
    for disabled in
        [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_TRACES_SAMPLER", "always_off"), xray]
    {
        let function = fixture.function_with(&[to, disabled]).await;
        assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
        assert!(collector.spans().is_empty(), "{disabled:?}");
    }
    let enabled = [to, xray, ("OTEL_TRACES_SAMPLER", "always_on"), ("OTEL_SERVICE_NAME", "billing")];
    let function = fixture.function_with(&enabled).await;
    assert_eq!(function.answer(event(["m1", "m2", "m3"].map(|id| pay(id, id)))).await, NO_FAILURES);
    let (invocation, _) = invocation_and_messages(&collector.spans(), ["m1", "m2", "m3"]);
    assert_eq!(trace(&invocation.trace_id), LAMBDA_TRACE);
    assert_eq!(span(&invocation.parent_span_id), 0x9a91_97af_755a_6419);
    assert_eq!(attribute(&collector.sent()[0].resource, "service.name").as_deref(), Some("billing"));
}

#[tokio::test]
async fn all_spans_of_a_large_batch_are_sent() {
    let (fixture, collector) = (Fixture::start().await, Collector::start().await);
    let function = fixture.function_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]).await;
    let records = (0..600).map(|n| pay(&format!("m{n}"), &format!("pay_{n}")));
    assert_eq!(function.begin(event(records), Duration::from_secs(60)).answer().await, NO_FAILURES);
    assert_eq!(collector.spans().len(), 601);
}

#[tokio::test]
async fn an_unreachable_or_unresponsive_collector_loses_only_spans() {
    let fixture = Fixture::start().await;
    let unresponsive = Server::start(|_request: Request| std::future::pending::<Answer>()).await;
    for (collector, timeout) in [(format!("127.0.0.1:{}", closed_port()), 20), (unresponsive.address(), 4)] {
        let endpoint = format!("http://{collector}");
        let function = fixture.function_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).await;
        let pending = function.begin(event([pay(&collector, &collector)]), Duration::from_secs(timeout));
        assert_eq!(pending.answer().await, NO_FAILURES);
        function.logs("spans were not sent").await;
    }
}

/// An eighth of a second is reserved for the response. A busy machine may need more than that, but not each time.
#[tokio::test]
async fn an_invocation_whose_collector_does_not_respond_answers_before_its_end() {
    let (fixture, asks) = (Fixture::start().await, Arc::new(AtomicUsize::new(0)));
    let asked = Arc::clone(&asks);
    let unresponsive = Server::start(move |_request: Request| {
        asked.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Answer>()
    })
    .await;
    let endpoint = format!("http://{}", unresponsive.address());
    let function = fixture.function_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).await;
    let mut is_in_time = false;
    for number in 1..=5 {
        let id = format!("m{number}");
        is_in_time = function.begin(event([pay(&id, &id)]), Duration::from_secs(4)).is_in_time().await;
        if is_in_time {
            break;
        }
    }
    assert!(is_in_time, "each response came after the end of its invocation");
    assert!(asks.load(Ordering::SeqCst) > 0, "no spans were sent");
}

#[tokio::test]
async fn a_concurrent_invocation_waits_no_longer_than_the_timeout_for_a_collector_that_does_not_respond() {
    let (fixture, asked) = (Fixture::start().await, Arc::new(Notify::new()));
    let asks = Arc::clone(&asked);
    let unresponsive = Server::start(move |_request: Request| {
        asks.notify_one();
        std::future::pending::<Answer>()
    })
    .await;
    let settings = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*format!("http://{}", unresponsive.address())),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "3000"),
        ("AWS_LAMBDA_MAX_CONCURRENCY", "8"),
    ];
    let function = fixture.function_with(&settings).await;
    let first = function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(60));
    asked.notified().await;
    let began = Instant::now();
    let second = function.begin(event([pay("m2", "pay_2")]), Duration::from_secs(60));
    assert_eq!(second.answer().await, NO_FAILURES);
    // The time that is left to the first one, and then 3 seconds, would be almost six.
    assert!(began.elapsed() < Duration::from_millis(4500), "{:?}", began.elapsed());
    assert_eq!(first.answer().await, NO_FAILURES);
}

#[tokio::test]
async fn spans_of_an_invocation_that_ends_while_another_one_sends_are_sent_with_the_next_ones() {
    let fixture = Fixture::start().await;
    let collector = Collector::with_delays(|request| Duration::from_secs(if request == 1 { 6 } else { 0 })).await;
    let endpoint = collector.url();
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("AWS_LAMBDA_MAX_CONCURRENCY", "8")];
    let function = fixture.function_with(&settings).await;
    let begin = |id: &str, seconds| function.begin(event([pay(id, id)]), Duration::from_secs(seconds));
    let first = begin("m1", 60);
    until(|| async { !collector.sent().is_empty() }).await;
    assert_eq!(begin("m2", 3).answer().await, NO_FAILURES);
    assert_eq!(first.answer().await, NO_FAILURES);
    assert_eq!(begin("m3", 60).answer().await, NO_FAILURES);
    let spans = collector.spans();
    let mut ids: Vec<_> = spans.iter().filter_map(|span| attribute(&span.attributes, "messaging.message.id")).collect();
    ids.sort();
    assert_eq!(ids, ["m1", "m2", "m3"]);
}

#[tokio::test]
async fn traces_do_not_change_the_log() {
    let (fixture, collector) = (Fixture::start().await, Collector::start().await);
    let endpoint = collector.url();
    let mut lines = Vec::new();
    for settings in [&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())][..], &[]] {
        let function = fixture.function_with(settings).await;
        function.invoke(event([Record::new("m1").key("")])).await;
        let log = function.logs("NO_KEY").await;
        lines.push(log.into_iter().find(|line| line.contains("NO_KEY")).unwrap());
    }
    assert_eq!(lines[0], lines[1]);
}

#[tokio::test]
async fn each_message_behind_a_failed_one_of_its_group_has_a_span() {
    let (fixture, collector) = (Fixture::start().await, Collector::start().await);
    fixture.webhook.respond_for("pay_1", Answer::status(500));
    let function = fixture.function_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]).await;
    let delivered = event(["1", "2", "3"].map(|n| pay(&format!("m{n}"), &format!("pay_{n}")).group("a")));
    assert_eq!(function.invoke(delivered).await, ["m1", "m2", "m3"]);
    let spans = collector.spans();
    invocation_and_messages(&spans, ["m1", "m2", "m3"]);
}

#[tokio::test]
async fn an_address_with_white_space_is_not_used_and_the_log_says_so() {
    let (fixture, collector) = (Fixture::start().await, Collector::start().await);
    let spaced = format!(" {}", collector.url());
    // The harness fails if this token appears in the log.
    let with_password = spaced.replace("http://", "http://user:SECRET-TOKEN@");
    for (variable, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", " "),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &spaced),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &with_password),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", " "),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &with_password),
    ] {
        let function = fixture.function_with(&[(variable, value)]).await;
        assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
        let log = function.logs("no traces are sent: check the OTEL_ variables").await;
        assert!(log.iter().any(|line| line.contains(&format!("invalid {variable}\""))), "{log:?}");
    }
    assert!(collector.spans().is_empty());
}

/// The specification of OpenTelemetry says that an empty value counts as not set.
#[tokio::test]
async fn without_a_name_in_the_variables_the_service_is_the_function() {
    for (variable, value, expected) in [
        ("OTEL_SERVICE_NAME", "", "payments"),
        ("OTEL_RESOURCE_ATTRIBUTES", "upstream.service.name=shop", "payments"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.version=7, service.name= ", "payments"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.version=7, service.name=shop", "shop"),
    ] {
        let (fixture, collector) = (Fixture::start().await, Collector::start().await);
        let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url()), (variable, value)];
        let function = fixture.function_with(&settings).await;
        assert_eq!(function.answer(event([pay("m1", "pay_1")])).await, NO_FAILURES);
        assert_eq!(
            attribute(&collector.sent()[0].resource, "service.name").as_deref(),
            Some(expected),
            "{variable}={value}"
        );
    }
}

/// The header of a sender that has no segment, such as API Gateway.
#[tokio::test]
async fn a_message_whose_header_names_no_parent_is_linked_with_no_trace() {
    let (fixture, collector) = (Fixture::start().await, Collector::start().await);
    let function = fixture.function_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]).await;
    let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1";
    assert_eq!(function.answer(event([sent_in(pay("m1", "pay_1"), header)])).await, NO_FAILURES);
    let spans = collector.spans();
    let message = spans.iter().find(|span| span.name == "process payments").unwrap();
    assert!(message.links.is_empty(), "{:?}", message.links);
}
