//! Failovers of real servers under load, each by its own means: sentinels, or the nodes of a cluster.
//!
//! The verdict uses the calls of all clients, the effects, and the append-only files of both primaries. Each server
//! alone answers as the state machine does, and only writes that the new primary never got are lost.
//!
//! `make test` has one run of each fault. `make torture` has `TORTURE_SEEDS` runs of each with every protection, and
//! prints a table.

mod cluster;
mod hand_made;
mod load;
mod sentinel;
mod waiting;

use std::time::Duration;

use harness::network::Deployment;
use harness::redis::Redis;
use harness::sentinel::is_synchronized;
use harness::torture::Length;
use history::{FailoverVerdict, Reach, monotonic_us};
use load::Load;
use tokio::time::sleep;

/// What happens to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Its process ends (SIGKILL), and does not come back. What it has sent arrives.
    Killed,
    /// Its host ends, and what it has sent is lost on the way.
    HostLost,
    /// It stops (SIGSTOP), and resumes after another server was promoted.
    Frozen,
    /// As `Frozen`, with a sentinel that is cut off from the servers and the others: it goes on to name the old
    /// primary, and replies to clients before the others do. When the old primary resumes, the clients lose the new one
    /// for a while.
    OldView,
    /// It is cut off from all but the clients of the near side, until another server was promoted.
    Partitioned,
}

/// What makes the loss of writes less likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    None,
    /// `min-replicas-to-write 1` and `min-replicas-max-lag 1`.
    MinReplicas,
    /// The client waits until this number of replicas has each write, and fails if they have not.
    Wait(u8),
}

impl Protection {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::MinReplicas => &["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"],
            Self::None | Self::Wait(_) => &[],
        }
    }

    fn replicas(self) -> u8 {
        match self {
            Self::Wait(replicas) => replicas,
            Self::None | Self::MinReplicas => 0,
        }
    }

    /// Whether writes succeed after this fault, if the primary had so many replicas, one of which is then the primary.
    fn permits_writes(self, fault: Fault, replicas: u8) -> bool {
        let is_lost = matches!(fault, Fault::Killed | Fault::HostLost);
        let left = if is_lost { replicas - 1 } else { replicas };
        match self {
            Self::None => true,
            Self::MinReplicas => left >= 1,
            Self::Wait(needed) => left >= needed,
        }
    }
}

/// How long the load lasts before the fault, and while both servers could be primaries.
const PHASE: Duration = Duration::from_millis(700);

/// How long the clients do not reach the new primary while the old one resumes: longer than their timeout, and shorter
/// than the sentinels need to demote the old one.
const HIDDEN: Duration = Duration::from_millis(500);

/// When a fault began and ended, by the monotonic clock, µs.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Before and after it was injected.
    injected: [u64; 2],
    /// When it was undone, if it was.
    undone: u64,
    /// When the old primary was a replica.
    demoted: u64,
}

impl Times {
    /// When the clients of each side could reach the primaries: near and far.
    fn reach(&self, fault: Fault) -> [Reach; 2] {
        let Self { injected: [before, after], undone, demoted } = *self;
        let far = Reach { old: [0..after, undone..demoted], new_from: before };
        let near = match fault {
            Fault::Partitioned => Reach { old: [0..demoted, 0..0], new_from: undone },
            Fault::Killed | Fault::HostLost | Fault::Frozen | Fault::OldView => far.clone(),
        };
        [near, far]
    }
}

/// Injects the fault under load, waits for the failover, and undoes the fault. Returns the times, and the server that
/// was promoted. `continues`: the new primary accepts writes.
async fn inject(
    deployment: &mut impl Deployment,
    fault: Fault,
    continues: bool,
    load: &Load,
    is_affected: impl Fn(&str) -> bool,
) -> (Times, usize) {
    sleep(PHASE).await;
    let before = monotonic_us();
    match fault {
        Fault::Killed => deployment.first().kill(),
        Fault::HostLost => deployment.lose_host(),
        Fault::Frozen | Fault::OldView => deployment.first().signal("-STOP"),
        Fault::Partitioned => deployment.partition(),
    }
    let injected = [before, monotonic_us()];
    let promoted = deployment.promoted().await;
    let mut times = Times { injected, undone: injected[1], demoted: injected[1] };
    if matches!(fault, Fault::Frozen | Fault::OldView | Fault::Partitioned) {
        sleep(PHASE).await;
        times.undone = monotonic_us();
        match fault {
            Fault::Partitioned => deployment.heal(),
            Fault::OldView => {
                deployment.hide(promoted);
                deployment.first().signal("-CONT");
                sleep(HIDDEN).await;
                deployment.heal();
            }
            _ => deployment.first().signal("-CONT"),
        }
        is_synchronized(deployment.first()).await;
        times.demoted = monotonic_us();
    }
    if continues {
        load.continues(is_affected).await;
    } else {
        sleep(PHASE).await;
    }
    (times, promoted)
}

/// Whether the server that was promoted is still the primary. On a busy machine it may have been replaced too; then the
/// run has three primaries, and is repeated.
async fn is_primary(promoted: &Redis) -> bool {
    let mut connection = promoted.connection().await;
    let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await.unwrap();
    info.contains("role:master")
}

/// Fails if anything is wrong, or too little happened.
fn is_right(verdict: &FailoverVerdict) {
    println!("{verdict}\n{}", verdict.servers);
    assert!(verdict.wrong.is_empty(), "{:#?}", verdict.wrong);
    assert!(verdict.acknowledged > 50 && verdict.effects > 20, "too little happened: {verdict}");
    assert!(verdict.continued > 0, "the clients of one side do not continue on the new primary");
}

/// Runs each fault with each of these protections, several times. Prints a line for each.
async fn table(
    faults: &[Fault],
    protections: &[Protection],
    run: impl AsyncFn(u64, Fault, Protection) -> FailoverVerdict,
) {
    let Length { seeds, first, .. } = Length::from_env();
    let mut wrong = Vec::new();
    let columns =
        ["acked", "lost", "last ms", "effects", "first", "recov.", "wrong"].map(|column| format!("{column:>7}"));
    println!("{:<30} {}", "", columns.join(" "));
    for fault in faults {
        for protection in protections {
            let mut sum = FailoverVerdict::default();
            for seed in first..first + seeds {
                sum.add(run(seed, *fault, *protection).await);
            }
            println!("{:<30} {sum}", format!("{fault:?}, {protection:?}"));
            wrong.extend(sum.wrong);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
