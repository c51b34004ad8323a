//! One contended key: a Lua script against WATCH, MULTI and EXEC.
//!
//! Each request reads a counter and writes it, as a check must that only one of many clients may pass. It also works
//! for 50 ms, after the write or before it. `-- --write` puts the figures into `docs/bench.md`.

use std::time::{Duration, Instant};

use benches::figures::{median, ms, number, percentile, short};
use benches::server::Server;
use benches::table::Table;
use benches::{Fallible, page};
use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult, Script, pipe};
use tokio::time::sleep;

/// The numbers of the published claim that this benchmark examines.
const CLIENTS: usize = 200;
const REQUESTS: usize = 10;
const WORK: Duration = Duration::from_millis(50);

const ROUNDS: usize = 5;

/// Longest pause before a retry, about the time to serve each client once.
const MAX_PAUSE_MS: u32 = 40;

/// After this time no request begins or is retried. With the work before EXEC, one client succeeds per 50 ms, and all
/// requests would take minutes.
const TIMEOUT: Duration = Duration::from_secs(10);

const KEY: &str = "contended";

const SCRIPT: &str = "\
    local count = tonumber(redis.call('GET', KEYS[1]) or 0) + 1
    redis.call('SET', KEYS[1], count)
    return count";

#[derive(Clone, Copy)]
enum Method {
    Script,
    Watch,
    /// With a random pause before each retry.
    WatchAndPause,
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    None,
    /// After the write.
    After,
    /// Between the read and the write. A script cannot do that, as it would block Redis.
    Before,
}

const CASES: [(&str, Method, Work); 6] = [
    ("script, no work", Method::Script, Work::None),
    ("`WATCH`, no work", Method::Watch, Work::None),
    ("script, then 50 ms of work", Method::Script, Work::After),
    ("`WATCH`, then 50 ms of work", Method::Watch, Work::After),
    ("`WATCH`, pauses of 0 to 40 ms, then 50 ms of work", Method::WatchAndPause, Work::After),
    ("`WATCH`, 50 ms of work before `EXEC`", Method::Watch, Work::Before),
];

/// The requests of one case in one round, or those of one client.
#[derive(Default)]
struct Run {
    /// The time of each request, with its work.
    times: Vec<Duration>,
    /// Attempts that failed because another client wrote the key first.
    retries: usize,
    wall: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Fallible<()> {
    let server = Server::start(&[])?;
    let client = Client::open(server.url())?;
    let clients = try_join_all((0..CLIENTS).map(|_| client.get_multiplexed_async_connection())).await?;
    let mut runs: [Vec<Run>; CASES.len()] = Default::default();
    for round in 1..=ROUNDS {
        for ((name, method, work), runs) in CASES.iter().zip(&mut runs) {
            eprintln!("contention, round {round} of {ROUNDS}: {name}");
            server.flush()?;
            let start = Instant::now();
            let each =
                try_join_all(clients.iter().map(|client| requests(client.clone(), *method, *work, start))).await?;
            let mut run = Run { wall: start.elapsed(), ..Run::default() };
            for client in each {
                run.times.extend(client.times);
                run.retries += client.retries;
            }
            let count: usize = server.command(&["GET", KEY])?;
            if count != run.times.len() {
                return Err(format!("{name}: the counter is {count} after {} requests", run.times.len()).into());
            }
            runs.push(run);
        }
    }
    let text = format!(
        "{}; {CLIENTS} clients, {REQUESTS} requests each, medians of {ROUNDS} rounds.\n\n{}",
        page::environment(&server.version()?),
        table(&runs).text()
    );
    println!("{text}");
    if std::env::args().any(|argument| argument == "--write") {
        page::write("contention", &text)?;
    }
    Ok(())
}

/// Sends the requests of one client, one after another.
async fn requests(mut redis: MultiplexedConnection, method: Method, work: Work, start: Instant) -> RedisResult<Run> {
    let script = Script::new(SCRIPT);
    let mut run = Run::default();
    while run.times.len() < REQUESTS && start.elapsed() < TIMEOUT {
        let begin = Instant::now();
        match method {
            Method::Script => script.key(KEY).invoke_async(&mut redis).await?,
            Method::Watch | Method::WatchAndPause => {
                while !increment(&mut redis, work).await? {
                    run.retries += 1;
                    if let Method::WatchAndPause = method {
                        let pause = getrandom::u32().unwrap_or_default() % (MAX_PAUSE_MS + 1);
                        sleep(Duration::from_millis(pause.into())).await;
                    }
                    if start.elapsed() > TIMEOUT {
                        return Ok(run);
                    }
                }
            }
        }
        if work == Work::After {
            sleep(WORK).await;
        }
        run.times.push(begin.elapsed());
    }
    Ok(run)
}

/// Increments the counter by WATCH, MULTI and EXEC. `false` if another client wrote it after the read.
async fn increment(redis: &mut MultiplexedConnection, work: Work) -> RedisResult<bool> {
    let (count,): (Option<usize>,) =
        pipe().cmd("WATCH").arg(KEY).ignore().cmd("GET").arg(KEY).query_async(redis).await?;
    if work == Work::Before {
        sleep(WORK).await;
    }
    let count = count.unwrap_or(0) + 1;
    let done: Option<()> = pipe().atomic().cmd("SET").arg(KEY).arg(count).ignore().query_async(redis).await?;
    Ok(done.is_some())
}

fn table(runs: &[Vec<Run>]) -> Table {
    let mut table = Table::new(&["what", "requests done", "requests/s", "p50 ms", "p99 ms", "retries a request"]);
    for ((name, ..), runs) in CASES.iter().zip(runs) {
        let figure = |figure: &dyn Fn(&Run) -> f64| short(median(runs.iter().map(figure)));
        let times = |run: &Run| run.times.iter().copied().map(ms).collect::<Vec<_>>();
        table.row([
            (*name).to_owned(),
            figure(&|run| number(run.times.len())),
            figure(&|run| number(run.times.len()) / run.wall.as_secs_f64()),
            figure(&|run| median(times(run))),
            figure(&|run| percentile(99, times(run))),
            figure(&|run| number(run.retries) / number(run.times.len())),
        ]);
    }
    table
}
