//! Whether the metrics of each request say what was reported of it: the table in the documentation of `EmfMetrics`.
//!
//! A process of its own prints them, because they go to standard output.

use std::env;
use std::process::Command;
use std::time::Duration;

use harness::redis::Redis;
use idempotent_sqs_http::EmfMetrics;
use serde_json::{Map, Value, json};

use http_history::{Tally, record_lines};

use super::contend;

const NAMESPACE: &str = "Payments";

const CONSUMER: &str = "payments-http";

#[test]
fn each_request_has_the_metrics_of_its_report() {
    let program = env::current_exe().unwrap();
    let arguments = ["--exact", "metrics::requests_print_reports_and_metrics", "--ignored", "--nocapture"];
    let output = Command::new(program).args(arguments).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let lines: Vec<Value> = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (pairs, rest) = lines.as_chunks();
    assert!(pairs.len() > 30 && rest.is_empty(), "{printed}");
    for [report, metrics] in pairs {
        assert_eq!(wrong(report, metrics), None, "{report} {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the test above runs it and reads what it prints"]
async fn requests_print_reports_and_metrics() {
    record_lines();
    let (server, directory) = (Redis::start().await, tempfile::tempdir().unwrap());
    let tally = Tally::printing(EmfMetrics::new(NAMESPACE, CONSUMER));
    contend(1, &server, directory.path(), Duration::from_secs(1), tally).await;
}

/// What is wrong with the metrics of a request of which this was reported.
fn wrong(report: &Value, metrics: &Value) -> Option<&'static str> {
    let mut values = metrics.as_object().cloned().unwrap_or_default();
    let metadata = values.remove("_aws").unwrap_or_default();
    let ms = values.remove("RequestLatency").and_then(|ms| ms.as_f64()).unwrap_or(f64::MAX);
    let mut expected = Map::from_iter([
        ("Consumer".to_owned(), json!(CONSUMER)),
        (report["outcome"].as_str().unwrap_or_default().to_owned(), json!(1)),
    ]);
    if !report["attempts"].is_null() {
        expected.insert("Attempts".to_owned(), report["attempts"].clone());
    }
    if report["is_recovery"] == true {
        expected.insert("Recoveries".to_owned(), json!(1));
    }
    let directive = &metadata["CloudWatchMetrics"][0];
    let unit = |name: &str| if name == "RequestLatency" { "Milliseconds" } else { "Count" };
    let names = expected.keys().map(String::as_str).filter(|name| *name != "Consumer").chain(["RequestLatency"]);
    let has_units = names.map(|name| json!({ "Name": name, "Unit": unit(name) })).all(|metric| {
        // The unit of a count may be left out.
        directive["Metrics"].as_array().is_some_and(|metrics| metrics.contains(&metric))
    });
    if values != expected {
        Some("other values")
    } else if (ms - report["us"].as_f64().unwrap_or_default() / 1000.0).abs() > 0.002 {
        Some("another latency")
    } else if directive["Namespace"] != NAMESPACE || directive["Dimensions"] != json!([["Consumer"]]) || !has_units {
        Some("another namespace, dimension or unit")
    } else {
        None
    }
}

#[test]
fn metrics_of_another_report_are_refused() {
    let report = json!({ "outcome": "Completed", "attempts": 2, "is_recovery": true, "us": 1500 });
    let units =
        [("Completed", "Count"), ("Attempts", "Count"), ("Recoveries", "Count"), ("RequestLatency", "Milliseconds")];
    let units = units.map(|(name, unit)| json!({ "Name": name, "Unit": unit }));
    let directive = json!({ "Namespace": NAMESPACE, "Dimensions": [["Consumer"]], "Metrics": units });
    let right = json!({ "_aws": { "CloudWatchMetrics": [directive] }, "Consumer": CONSUMER, "Completed": 1, "Attempts": 2,
        "Recoveries": 1, "RequestLatency": 1.5 });
    assert_eq!(wrong(&report, &right), None);
    let changes = [
        ("Consumer", json!("another")),
        ("Attempts", json!(1)),
        ("Recoveries", json!(null)),
        ("Replayed", json!(1)),
        ("RequestLatency", json!(1.6)),
        ("_aws", json!({})),
    ];
    for (name, value) in changes {
        let mut metrics = right.clone();
        metrics[name] = value;
        assert!(wrong(&report, &metrics).is_some(), "{metrics}");
    }
    assert!(wrong(&report, &report).is_some(), "no metrics");
}
