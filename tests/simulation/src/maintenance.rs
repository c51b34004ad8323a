//! What happens to the servers of some seeds beside the faults of the plan: passwords are replaced, servers crash right
//! after they have executed a command, and servers refuse calls.

use std::sync::PoisonError;
use std::time::Duration;

use history::Rng;
use tokio::time::{Instant, sleep};

use crate::function::Shared;
use crate::network;
use crate::redis::{Cluster, Server};
use crate::servers::LoginKind;

/// Maintains the servers until the faults end.
pub async fn maintain(shared: &Shared, redis: &Cluster) {
    tokio::join!(replace_passwords(shared, redis), crash_servers(shared, redis), refuse_calls(shared, redis));
}

/// Errors of a server that executes no script: <https://github.com/redis/redis/blob/8.2/src/server.c>.
const REFUSALS: [&str; 6] = [
    "NOPERM User payments has no permissions to run the 'evalsha' command",
    "NOPERM User payments has no permissions to run the 'evalsha' command",
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS Not enough good replicas to write.",
];

/// Lets a server refuse calls for some time, until the faults end.
async fn refuse_calls(shared: &Shared, redis: &Cluster) {
    let (plan, mut rng) = (&shared.plan, Rng::new(shared.plan.seed ^ 0x4ef5));
    let ends = Instant::now() + plan.lasts;
    while plan.redis.refuses && Instant::now() < ends {
        sleep(rng.ms(500..8000)).await;
        let server = rng.pick(&redis.servers);
        server.refuse(Some(*rng.pick(&REFUSALS)));
        sleep(rng.ms(10..2000)).await;
        server.refuse(None);
    }
}

/// Replaces the password until the faults end.
async fn replace_passwords(shared: &Shared, redis: &Cluster) {
    let (plan, mut rng) = (&shared.plan, Rng::new(shared.plan.seed ^ 0x9a55));
    let ends = Instant::now() + plan.lasts;
    while plan.redis.logins == LoginKind::Password && Instant::now() < ends {
        sleep(rng.ms(500..8000)).await;
        shared.logins.replace_password();
        // Between these, a new connection is impossible.
        if !plan.is_quiet && rng.happens(300) {
            sleep(rng.ms(1..1000)).await;
        }
        shared.logins.store_password();
        // Open connections go on. Some operators end them.
        if !plan.is_quiet && rng.happens(600) {
            let processes = shared.processes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for (process, server) in
                processes.values().flat_map(|p| redis.servers.iter().map(move |server| (p, server)))
            {
                network::cut(&process.name, server.name());
            }
        }
    }
}

/// Lets servers crash until the faults end, one or all of them at once. They keep their records, and load them before
/// they execute scripts.
async fn crash_servers(shared: &Shared, redis: &Cluster) {
    let (plan, mut rng) = (&shared.plan, Rng::new(shared.plan.seed ^ 0xc4a5));
    let mut loads = Rng::new(plan.seed ^ 0x10ad);
    let ends = Instant::now() + plan.lasts;
    while plan.redis.crash && Instant::now() < ends {
        sleep(rng.ms(100..1000)).await;
        let (server, all) = (rng.pick(&redis.servers), rng.happens(600));
        let is_shared = redis.servers.len() > 1 && rng.happens(700);
        if server.crash(is_shared, Duration::from_secs(4)).await {
            let crashed = redis.servers.iter().filter(|other| all || other.name() == server.name());
            let restart = |server: &Server| (server.clone(), rng.ms(50..2500), loads.ms(0..600));
            let restarts = crashed.map(restart).map(|(server, down, loads)| {
                tokio::spawn(async move {
                    server.refuse(Some(REFUSALS[2]));
                    server.restart(down).await;
                    sleep(loads).await;
                    server.refuse(None);
                })
            });
            for restart in restarts.collect::<Vec<_>>() {
                restart.await.expect("a server starts");
            }
        }
    }
}
