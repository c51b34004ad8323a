//! An HTTP endpoint that takes each request once: a Lua script against `WATCH`, and other crates.
//!
//! The servers run as processes of their own, with one redis-server. They are measured alternately, at several numbers
//! of clients. `-- --write` puts the figures into `docs/bench.md`.

mod endpoint;
mod load;
mod programs;
mod report;
mod requests;

use benches::figures::number;
use benches::server::Server;
use benches::{Fallible, page};
use redis::Value;
use tokio::runtime::{Builder, Runtime};

use endpoint::{Endpoint, KINDS};
use requests::{Answers, Keys};

const ROUNDS: usize = 10;

/// The number of clients of the published claim that this benchmark examines.
const MOST_CLIENTS: usize = 200;

/// What is measured.
struct Case {
    name: &'static str,
    title: &'static str,
    keys: Keys,
    work_ms: u32,
    clients: &'static [usize],
}

const CASES: [Case; 5] = [
    Case {
        name: "own",
        title: "each request its own key",
        keys: Keys::Own,
        work_ms: 0,
        clients: &[1, 16, 64, MOST_CLIENTS],
    },
    Case {
        name: "own-work",
        title: "each request its own key, 50 ms of work",
        keys: Keys::Own,
        work_ms: 50,
        clients: &[MOST_CLIENTS],
    },
    Case {
        name: "hot",
        title: "one key from all clients at once",
        keys: Keys::Hot,
        work_ms: 0,
        clients: &[16, 64, MOST_CLIENTS],
    },
    Case {
        name: "hot-work",
        title: "one key from all clients at once, 50 ms of work",
        keys: Keys::Hot,
        work_ms: 50,
        clients: &[16, 64, MOST_CLIENTS],
    },
    Case {
        name: "replay",
        title: "one completed key",
        keys: Keys::Completed,
        work_ms: 0,
        clients: &[1, 16, 64, MOST_CLIENTS],
    },
];

/// One endpoint in one round.
struct Sample {
    answers: Answers,
    /// Runs of the handler.
    runs: f64,
    /// Repeated transactions.
    retries: f64,
    /// Processor time of the server, µs.
    cpu_us: f64,
    /// Processor time of Redis, µs.
    redis_us: f64,
}

/// A case with a number of clients.
struct Measurement {
    case: &'static Case,
    clients: usize,
    /// The rounds of each endpoint.
    samples: Vec<Vec<Sample>>,
}

fn main() -> Fallible<()> {
    let server = Server::start(&[])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut endpoints = runtime.block_on(start(&server.url()))?;
    let kinds: Vec<_> = endpoints.iter().map(|endpoint| endpoint.kind).collect();
    for endpoint in &mut endpoints {
        for keys in [Keys::Own, Keys::Hot] {
            server.flush()?;
            runtime.block_on(requests::send(endpoint, keys, 0, MOST_CLIENTS, "warm-up"))?;
        }
    }
    let mut measurements: Vec<_> = CASES
        .iter()
        .flat_map(|case| case.clients.iter().map(move |clients| (case, *clients)))
        .map(|(case, clients)| Measurement { case, clients, samples: kinds.iter().map(|_| Vec::new()).collect() })
        .collect();
    for round in 1..=ROUNDS {
        for Measurement { case, clients, samples } in &mut measurements {
            eprintln!("http, round {round} of {ROUNDS}: {}, {clients} clients", case.title);
            for (endpoint, samples) in endpoints.iter_mut().zip(samples) {
                samples.push(measure(&runtime, &server, endpoint, case, *clients, round)?);
            }
        }
    }
    let expires_fields: Vec<Option<Value>> = server.command(&["COMMAND", "INFO", "HEXPIRE"])?;
    let text = format!(
        "{}; {ROUNDS} rounds.\n\n{}",
        page::environment(&server.version()?),
        report::text(&measurements, &kinds, expires_fields.iter().any(Option::is_some))
    );
    println!("{text}");
    if std::env::args().any(|argument| argument == "--write") {
        page::write("http", &text)?;
    }
    Ok(())
}

/// Starts the endpoints, without the peers if these cannot be built.
async fn start(redis: &str) -> Fallible<Vec<Endpoint>> {
    let (own, peers) = (Ok(programs::own()?), programs::peers());
    let mut endpoints = Vec::new();
    for kind in &KINDS {
        match if kind.is_peer { &peers } else { &own } {
            Ok(program) => endpoints.push(Endpoint::start(kind, program, redis, MOST_CLIENTS).await?),
            Err(error) => eprintln!("skipped: {}: {error}", kind.name),
        }
    }
    Ok(endpoints)
}

/// Measures one endpoint.
fn measure(
    runtime: &Runtime,
    server: &Server,
    endpoint: &mut Endpoint,
    case: &Case,
    clients: usize,
    round: usize,
) -> Fallible<Sample> {
    server.flush()?;
    let label = format!("payment-{}-{clients}-{round}", case.name);
    let ((answers, counted), load) = server.load_of(|| {
        runtime.block_on(async {
            let before = endpoint.counters().await?;
            let answers = requests::send(endpoint, case.keys, case.work_ms, clients, &label).await?;
            Ok((answers, endpoint.counters().await? - before))
        })
    })?;
    let (runs, keys) = (f64::from(counted.runs), number(answers.keys));
    if endpoint.kind.must_run_once() && runs.total_cmp(&keys).is_ne() {
        return Err(format!("{}, {}: {runs} runs for {keys} keys", endpoint.kind.name, case.title).into());
    }
    Ok(Sample { answers, runs, retries: f64::from(counted.retries), cpu_us: counted.cpu_us, redis_us: load.cpu_us })
}
