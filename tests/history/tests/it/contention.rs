//! Owners contend on a real Redis, with and without faults.

use std::path::Path;
use std::time::Duration;

use harness::torture::faults::{self, Pair};
use harness::torture::tally::Tally;
use history::{Allowances, History, RecordedStore, Report, Rng, Value, call_with_other_values};
use idempotent_sqs::{Key, RedisSettings, RedisStore};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};

const CLIENTS: usize = 4;

/// Contends on the Redis at `url`, and records the calls of each client in a file in this directory.
pub(crate) async fn contend(seed: u64, url: &str, directory: &Path, lasts: Duration) {
    let namespace = new_namespace();
    let client = |()| RecordedStore::new(store(url, &namespace), directory).unwrap();
    history::contend(Rng::new(seed), [(); CLIENTS].map(client).into(), lasts).await;
}

/// What is wrong with calls at `url` for keys whose values are not records. `connection` is to the same Redis.
pub(crate) async fn with_other_values(url: &str, connection: MultiplexedConnection) -> Vec<String> {
    let namespace = new_namespace();
    let name = |key: &Key| format!("{namespace}:{}", key.as_str());
    let get = async |key: &Key| {
        let mut connection = connection.clone();
        let kind: String = redis::cmd("TYPE").arg(name(key)).query_async(&mut connection).await.unwrap();
        match &*kind {
            "string" => Some(Value::String(connection.get(name(key)).await.unwrap())),
            "list" => Some(Value::List),
            _ => None,
        }
    };
    let put = async |key: &Key, value: &Value| {
        let mut connection = connection.clone();
        let () = connection.del(name(key)).await.unwrap();
        match value {
            Value::String(text) => connection.set(name(key), text).await.unwrap(),
            Value::List => connection.lpush(name(key), "in use").await.unwrap(),
        }
    };
    call_with_other_values(&store(url, &namespace), get, put).await
}

/// Each run has its own records.
fn new_namespace() -> String {
    format!("contention-{:08x}", getrandom::u32().unwrap())
}

fn store(url: &str, namespace: &str) -> RedisStore {
    let mut settings = RedisSettings::new(url.parse().unwrap(), namespace);
    settings.timeout = Duration::from_millis(300);
    RedisStore::new(&settings).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_of_contending_owners_is_that_of_the_state_machine() {
    let mut pair = Pair::start().await;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("redis://127.0.0.1:{}", pair.front.port);
    let (mut rng, tally) = (faults::Rng::new(1), Tally::default());
    let lasts = Duration::from_secs(3);
    let contended = contend(1, &url, directory.path(), lasts);
    let faults = async {
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            sleep(rng.millis(100..300)).await;
            pair.inject_fault(&mut rng, &tally).await;
        }
    };
    tokio::join!(contended, faults);
    let report = Report::of_calls(&History::read(directory.path()).unwrap(), Allowances::REAL);
    println!("{report}");
    if report.faults().next().is_some() {
        let faults: Vec<_> = report.faults().collect();
        panic!("`check-history {}` repeats the verdict: {faults:#?}", directory.keep().display());
    }
    assert!(report.steps > 300 && report.unanswered > 0, "too little happened");
}
