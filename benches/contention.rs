//! One key that everybody wants: a script against WATCH, MULTI and EXEC.
//!
//! Each request changes the key by what it has read there, as any check does that must not let two
//! in. Then, or before it writes, it works for a while. `-- --write` puts the figures into
//! `docs/bench.md`.

mod figures;
mod page;
mod table;

use std::time::{Duration, Instant};

use figures::{median, ms, number, percentile, short};
use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult, Script, cmd, pipe};
use redis_test::server::RedisServer;
use table::Table;
use tokio::time::sleep;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// The claim's own numbers.
const CLIENTS: usize = 200;
const REQUESTS: usize = 10;
const WORK: Duration = Duration::from_millis(50);

const ROUNDS: usize = 5;

/// Longest pause: about the time in which each of the clients could be served once.
const PAUSE_MS: u32 = 40;

/// No request begins or is tried again after so long: with the work inside, WATCH lets one client
/// through in 50 ms, and all requests would take minutes.
const PATIENCE: Duration = Duration::from_secs(10);

const KEY: &str = "contended";

const SCRIPT: &str = "\
    local count = tonumber(redis.call('GET', KEYS[1]) or 0) + 1
    redis.call('SET', KEYS[1], count)
    return count";

#[derive(Clone, Copy)]
enum Way {
    Script,
    Watch,
    /// Who was too late waits for a while, at random.
    WatchAndPause,
}

/// Where the 50 ms are.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Nowhere,
    /// After the key was changed.
    After,
    /// Between reading the key and changing it. No script can do that: Redis would stand still.
    Inside,
}

const CASES: [(&str, Way, Work); 6] = [
    ("script, no work", Way::Script, Work::Nowhere),
    ("`WATCH`, no work", Way::Watch, Work::Nowhere),
    ("script, then 50 ms of work", Way::Script, Work::After),
    ("`WATCH`, then 50 ms of work", Way::Watch, Work::After),
    ("`WATCH`, pauses of 0 to 40 ms, then 50 ms of work", Way::WatchAndPause, Work::After),
    ("`WATCH`, 50 ms of work before `EXEC`", Way::Watch, Work::Inside),
];

/// All requests of one case in one round, or of one client.
#[derive(Default)]
struct Run {
    /// Of each request, from its beginning to the end of its work.
    times: Vec<Duration>,
    /// Times that somebody else was quicker.
    retries: usize,
    wall: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Fallible<()> {
    let server = RedisServer::new();
    let client = Client::open(server.connection_info())?;
    let mut control = first_connection(&client).await?;
    let clients = try_join_all((0..CLIENTS).map(|_| client.get_multiplexed_async_connection())).await?;
    let mut runs: [Vec<Run>; CASES.len()] = Default::default();
    for round in 1..=ROUNDS {
        for ((name, way, work), runs) in CASES.iter().zip(&mut runs) {
            eprintln!("contention, round {round} of {ROUNDS}: {name}");
            let () = cmd("DEL").arg(KEY).query_async(&mut control).await?;
            let start = Instant::now();
            let each = try_join_all(clients.iter().map(|client| requests(client.clone(), *way, *work, start))).await?;
            let mut run = Run { wall: start.elapsed(), ..Run::default() };
            for client in each {
                run.times.extend(client.times);
                run.retries += client.retries;
            }
            let count: usize = cmd("GET").arg(KEY).query_async(&mut control).await?;
            if count != run.times.len() {
                return Err(format!("{name}: {} requests counted to {count}", run.times.len()).into());
            }
            runs.push(run);
        }
    }
    let version: String = cmd("INFO").arg("server").query_async(&mut control).await?;
    let version = version.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or_default();
    let circumstances = page::circumstances(&format!("Redis {version}"));
    let text = format!(
        "{circumstances}; {CLIENTS} clients, {REQUESTS} requests each, medians of {ROUNDS} rounds.\n\n{}",
        table(&runs).text()
    );
    println!("{text}");
    if std::env::args().any(|argument| argument == "--write") {
        page::write("contention", &text)?;
    }
    Ok(())
}

/// A connection, once the server is up.
async fn first_connection(client: &Client) -> RedisResult<MultiplexedConnection> {
    let start = Instant::now();
    loop {
        match client.get_multiplexed_async_connection().await {
            Err(_) if start.elapsed() < PATIENCE => sleep(Duration::from_millis(10)).await,
            outcome => return outcome,
        }
    }
}

/// One client's requests, one after another.
async fn requests(mut redis: MultiplexedConnection, way: Way, work: Work, start: Instant) -> RedisResult<Run> {
    let script = Script::new(SCRIPT);
    let mut run = Run::default();
    while run.times.len() < REQUESTS && start.elapsed() < PATIENCE {
        let begin = Instant::now();
        match way {
            Way::Script => script.key(KEY).invoke_async(&mut redis).await?,
            Way::Watch | Way::WatchAndPause => {
                while !change(&mut redis, work).await? {
                    run.retries += 1;
                    if let Way::WatchAndPause = way {
                        let pause = getrandom::u32().unwrap_or_default() % (PAUSE_MS + 1);
                        sleep(Duration::from_millis(pause.into())).await;
                    }
                    if start.elapsed() > PATIENCE {
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

/// Whether nobody changed the key between the reading and the writing.
async fn change(redis: &mut MultiplexedConnection, work: Work) -> RedisResult<bool> {
    let (count,): (Option<usize>,) =
        pipe().cmd("WATCH").arg(KEY).ignore().cmd("GET").arg(KEY).query_async(redis).await?;
    if work == Work::Inside {
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
