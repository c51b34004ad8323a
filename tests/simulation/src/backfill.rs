//! Backfills of an inbox: rows of a PostgreSQL are copied to a Redis that loses all records, while rows are written, and
//! sessions, statements and connections fail. Then nothing fails, and the records have to be those of the rows.
//!
//! - `rows`: the rows, and the records that Redis has before
//! - `runs`: runs of backfills
//! - `faults`: what happens to both servers
//! - `passes`: passes over the rows while something happens
//! - `verdict`: what is wrong with the records
//! - `reports`: what is wrong with the reports of the runs

mod faults;
mod passes;
mod reports;
mod rows;
mod runs;
mod verdict;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::with;
use history::Rng;
use history::inbox::SECRET;
use idempotent_sqs::{RedisSettings, RedisStore};
use idempotent_sqs_postgres::backfill::BackfillSettings;
use idempotent_sqs_postgres::{Database, DatabaseSettings};
use tokio::time::sleep;

use crate::network::{self, Conditions};
use crate::postgres::Server;
use crate::redis::Cluster;

use faults::Fault;
use rows::Row;
use runs::{Copier, RunSeen};

/// The consumer whose rows are copied.
const CONSUMER: &str = "copied";

/// Another one.
const OTHER: &str = "other";

const RETENTION: Duration = Duration::from_mins(10);

/// Largest result that is copied, bytes.
const MAX_BYTES: usize = 20;

/// The names of the database server that the copiers have for it.
const DATABASES: [&str; 2] = ["inbox0", "inbox1"];

/// The copiers.
const COPIERS: [&str; 2] = ["copier0", "copier1"];

/// Runs of each copier while there are faults.
const RUNS: u64 = 5;

/// Runs after which a pass has ended, if nothing fails.
const RUNS_OF_A_PASS: usize = 40;

/// The time of such a run.
const SHORT: Duration = Duration::from_millis(1500);

/// Faults that are shown.
const MOST_FAULTS: usize = 10;

/// What is shared.
struct World {
    redis: Cluster,
    database: Server,
    store: RedisStore,
    rows: Mutex<Vec<Row>>,
    runs: Mutex<Vec<RunSeen>>,
    faults: Mutex<Vec<Fault>>,
    rows_per_second: NonZeroU32,
    overlap: Duration,
}

/// What is wrong with the backfills of this seed.
pub async fn copy_rows(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0xbacf);
    network::set_conditions(Conditions { rng: rng.fork(), delay_ms: 2, lost: 0 });
    let world = Arc::new(World::start(rng));
    let copiers = [0, 1].map(|number| Arc::new(Copier::new(number, &world)));
    let specials = rows::write_specials(&world).await;
    world.insert(rng, 25).await;

    let mut contending = tokio::task::JoinSet::new();
    for copier in &copiers {
        contending.spawn(Arc::clone(copier).contend(rng.fork(), RUNS));
    }
    let writing = tokio::spawn(rows::write(Arc::clone(&world), rng.fork()));
    let disturbing = tokio::spawn(faults::disturb(Arc::clone(&world), rng.fork()));
    contending.join_all().await;
    disturbing.abort();
    let _aborted = disturbing.await;
    world.database.recover();
    for host in DATABASES {
        world.database.forget_failures(host);
    }
    let mut wrong = Vec::new();
    if writing.await.is_err() {
        wrong.push("the rows could not be written".to_owned());
    }
    // The links are whole again, and clients know it.
    sleep(Duration::from_secs(15)).await;
    wrong.extend(world.wrong_uncounted(&copiers[0]).await);
    let since = world.run_count();
    // A pass that was interrupted may be beyond the time of later rows. The next one sends them.
    wrong.extend(world.pass(&copiers[0], "of an interrupted pass").await);

    // A transaction is open while later rows are written.
    let held = world.hold_row("held").await;
    world.insert(rng, 8).await;
    wrong.extend(world.pass(&copiers[0], "while a transaction is open").await);
    wrong.extend(world.wrong_records(&specials, "while a transaction was open"));
    held.commit().await;
    wrong.extend(world.pass(&copiers[1], "after its commit").await);
    wrong.extend(world.wrong_records(&specials, "after a late commit"));

    wrong.extend(world.wrong_late_commit(rng, &copiers).await);
    wrong.extend(world.wrong_records(&specials, "after a commit during a pass"));

    sleep(Duration::from_secs(3)).await;
    wrong.extend(world.pass(&copiers[0], "before the next pass").await);
    wrong.extend(world.wrong_next_pass(&copiers[1]).await);
    wrong.extend(world.wrong_whole_pass(&copiers[0], &specials).await);
    wrong.extend(world.wrong_supersession(&copiers).await);
    wrong.extend(world.wrong_runs(since));
    wrong.extend(world.wrong_end_of_losses(&copiers[0]).await);
    wrong.extend(world.wrong_restoration(&copiers[1]).await);
    wrong.extend(world.wrong_records(&[], "after a loss"));
    wrong.extend(world.wrong_contents().await);
    wrong.extend(world.wrong_lifetimes().await);
    // Others follow from these.
    wrong.truncate(MOST_FAULTS);
    wrong
}

impl World {
    fn start(rng: &mut Rng) -> Self {
        let names: &[&str] = if rng.happens(300) { &["copies0", "copies1"] } else { &["copies0"] };
        let redis = Cluster::start(names);
        let database = Server::start(rows::WRITER);
        // Since 17 a server ends transactions by a timeout.
        let version = *rng.pick(&["16.4 (Debian 16.4-1)", "17.2"]);
        database.configure(version, None::<fn(&str, &str) -> bool>, 100);
        for host in DATABASES {
            database.listen_at(host);
        }
        let store = store(&redis, rows::WRITER);
        let per_second = u32::try_from(rng.draw(4..30)).unwrap_or_default();
        Self {
            redis,
            database,
            store,
            rows: Mutex::default(),
            runs: Mutex::default(),
            faults: Mutex::default(),
            rows_per_second: NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN),
            // Without an overlap, the horizon alone protects rows of transactions that are not listed yet.
            overlap: if rng.happens(500) { Duration::ZERO } else { rng.ms(0..6000) },
        }
    }
}

/// A store of this client.
fn store(redis: &Cluster, client: &str) -> RedisStore {
    let url = format!("redis://{}", network::address(redis.servers[0].name(), client));
    let settings = with!(
        RedisSettings::new(url.parse().expect("it is valid"), CONSUMER),
        cluster = redis.servers.len() > 1,
        timeout = Duration::from_millis(300),
    );
    RedisStore::new(&settings).expect("these settings are valid")
}

/// The database of this copier.
fn database(number: usize) -> Database {
    let address = network::address(DATABASES[number], COPIERS[number]);
    let url = format!("postgres://app:{SECRET}@{address}/app?sslmode=disable");
    let settings =
        with!(DatabaseSettings::new(url.parse().expect("it is valid")), timeout = Duration::from_millis(500));
    Database::new(&settings)
}

fn settings(world: &World) -> BackfillSettings {
    with!(
        BackfillSettings::new(CONSUMER),
        retention = RETENTION,
        result_max_bytes = MAX_BYTES,
        rows_per_second = world.rows_per_second,
        overlap = world.overlap,
    )
}
