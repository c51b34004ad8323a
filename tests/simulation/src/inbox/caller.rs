//! A caller: a process with its own database and inbox, on its own way to the server.

use std::num::{NonZeroU32, NonZeroUsize};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use harness::with;
use history::Rng;
use history::inbox::{Class, SECRET};
use idempotent_sqs::idempotency::{AcquireRequest, Fence, Work as _};
use idempotent_sqs::{Claim, Fingerprint, Key};
use idempotent_sqs_postgres::{Database, DatabaseSettings, Inbox, InboxSettings};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::calls::{Call, Told};
use super::operator;
use super::plan::{AtCommit, Before, Case, OnFailure, Plan, What};
use super::work::{Hosts, Input, Worker};
use super::world::{MAX_SESSION, World};
use crate::{lock, network};

/// How a caller differs.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub consumer: &'static str,
    /// The timeout of its database.
    pub timeout: Duration,
    /// Number of its calls at once.
    pub tasks: usize,
    pub connections: NonZeroUsize,
    /// Whether its password is replaced at times. Its URL then names another host last.
    pub has_password: bool,
    /// How long it takes to read a password that was replaced.
    pub password_takes: Duration,
    /// Whether its URL names a host first that does not reply.
    pub has_silent_host: bool,
    /// In how many attempts it deletes expired rows once.
    pub cleanup_one_in: u32,
}

/// Its rows expire soon.
pub const BRIEF: &str = "brief";

const KIND: Kind = Kind {
    consumer: "payments",
    timeout: Duration::from_secs(1),
    tasks: 1,
    connections: NonZeroUsize::MIN,
    has_password: false,
    password_takes: Duration::ZERO,
    has_silent_host: false,
    cleanup_one_in: 5,
};

const SHORT: Duration = Duration::from_millis(300);
const LONGER: Duration = Duration::from_millis(600);

pub const KINDS: [Kind; 11] = [
    KIND,
    Kind { timeout: SHORT, ..KIND },
    Kind { has_password: true, ..KIND },
    Kind { tasks: 2, ..KIND },
    Kind { tasks: 2, connections: const { NonZeroUsize::new(2).unwrap() }, ..KIND },
    // Has another connection while one is in use. No other caller has its keys, so that nothing else makes it late.
    Kind { consumer: "refunds", connections: const { NonZeroUsize::new(2).unwrap() }, ..KIND },
    Kind { has_silent_host: true, ..KIND },
    Kind { consumer: "invoices", ..KIND },
    Kind { consumer: BRIEF, cleanup_one_in: 1, ..KIND },
    Kind { consumer: BRIEF, timeout: SHORT, cleanup_one_in: 2, ..KIND },
    Kind { has_password: true, password_takes: LONGER, timeout: SHORT, ..KIND },
];

const FIRST_RIVAL: usize = 1000;

pub const CONSUMERS: [&str; 4] = ["payments", "invoices", "refunds", BRIEF];

/// How long the rows of this consumer are kept.
pub fn retention(consumer: &str) -> Duration {
    if consumer == BRIEF { Duration::from_millis(400) } else { InboxSettings::DEFAULT_RETENTION }
}

impl Kind {
    /// Callers that finish the work of this consumer.
    pub fn last(consumer: &'static str) -> Self {
        Self { consumer, cleanup_one_in: u32::MAX, ..KIND }
    }
}

pub struct Caller {
    number: usize,
    pub kind: Kind,
    hosts: Hosts,
    world: Arc<World>,
    inbox: Inbox<Worker>,
}

/// The names of the hosts of the caller with this number.
pub fn hosts(number: usize) -> Hosts {
    Hosts { caller: format!("payer{number}"), server: format!("database{number}") }
}

impl Caller {
    pub fn new(number: usize, kind: Kind, world: &Arc<World>) -> Self {
        let hosts = hosts(number);
        world.server.listen_at(&hosts.server);
        let address = network::address(&hosts.server, &hosts.caller);
        let first = if kind.has_silent_host { format!("silent.{},", hosts.caller) } else { String::new() };
        // It refuses connections, which must not hide that another host has rejected the password.
        let last = if kind.has_password { format!(",closed.{}", hosts.caller) } else { String::new() };
        let url = format!("postgres://app:{SECRET}@{first}{address}{last}/app?sslmode=disable");
        let settings = with!(
            DatabaseSettings::new(url.parse().expect("it is valid")),
            timeout = kind.timeout,
            connections = kind.connections,
            credentials = kind
                .has_password
                .then(|| Arc::new(world.passwords.source(Some(MAX_SESSION), kind.password_takes)) as _),
        );
        let database = Database::new(&settings);
        let settings = with!(
            InboxSettings::new(kind.consumer),
            cleanup_one_in = NonZeroU32::new(kind.cleanup_one_in).expect("it is not zero"),
            retention = retention(kind.consumer),
        );
        let inbox = Inbox::new(Worker(Arc::clone(world)), database, settings);
        Self { number, kind, hosts, world: Arc::clone(world), inbox }
    }

    /// Makes calls with keys that all callers of the consumer share for some time.
    pub async fn contend(self: Arc<Self>, mut rng: Rng, calls: usize) {
        for call in 0..calls {
            let mut plan = Plan::draw(&mut rng, self.kind.timeout, self.kind.tasks == 1);
            if self.kind.connections.get() > self.kind.tasks && rng.happens(400) {
                // The others of its pool are as silent as the first.
                plan.before = Before::Silent;
            }
            let key = format!("key-{}", call / 4);
            let payload = u64::from(rng.happens(120));
            let number = u8::try_from(rng.draw(1..9)).expect("it is small");
            if plan.fails_late() {
                tokio::spawn(do_meanwhile(Arc::clone(&self.world), self.kind.consumer, key.clone()));
            }
            self.call(&key, payload, number, plan).await;
            sleep(rng.ms(1..150)).await;
        }
    }

    /// Makes a call, and returns its number.
    pub async fn call(&self, key: &str, payload: u64, number: u8, plan: Plan) -> usize {
        self.prepare(key, payload, plan).await;
        let (fence, begun) = (self.world.next_fence(), Instant::now());
        let mut request = AcquireRequest::new(Key::new(key).expect("it has a text"));
        request.fingerprint = fingerprint(payload);
        request.lease = plan.time;
        let claim = Claim::of_completed_work(request, Fence(fence), number);
        let ends = claim.ends();
        let call = {
            let mut calls = lock(&self.world.calls);
            calls.push(Call {
                caller: self.number,
                consumer: self.kind.consumer,
                key: key.to_owned(),
                payload,
                fence,
                number,
                plan,
                begun,
                ends,
                ended: None,
                runs: Vec::new(),
                told: Told::Nothing,
            });
            calls.len() - 1
        };
        let dropped = Arc::new(Notify::new());
        let input = Input {
            call,
            plan,
            hosts: self.hosts.clone(),
            key: key.to_owned(),
            payload,
            dropped: Arc::clone(&dropped),
        };
        let told = tokio::select! {
            // As the core, which catches panics and cancels at the deadline.
            told = timeout_at(ends, AssertUnwindSafe(self.make(&claim, &input)).catch_unwind()) => {
                told.map_or(Told::Nothing, |told| told.unwrap_or(Told::Nothing))
            }
            () = dropped.notified() => Told::Nothing,
        };
        {
            let call = &mut lock(&self.world.calls)[call];
            (call.told, call.ended) = (told, Some(Instant::now()));
        }
        if plan.is_unreachable() {
            // The way to the server is closed until then.
            sleep_until(ends.max(begun + 2 * self.kind.timeout)).await;
        } else if let AtCommit::Lost { unreachable, .. } = plan.at_commit {
            // The call may have ended before.
            sleep(unreachable).await;
        }
        self.world.server.forget_failures(&self.hosts.server);
        network::disarm_host(&self.hosts.caller);
        network::disarm_host(&self.hosts.server);
        call
    }

    async fn make(&self, claim: &Claim, input: &Input) -> Told {
        let record = self.inbox.own_record().expect("an inbox has one");
        match input.plan.what {
            What::Attempt => Told::of_attempt(record.attempt(claim, input).await),
            What::Read => match record.recorded(claim.request(), claim.ends()).await {
                Ok(result) => Told::Row(result),
                Err(error) => Told::failed(&error),
            },
            What::Check => Told::Checked(self.inbox.check().await.map_err(|error| error.to_string())),
            What::DeleteExpired => Told::Deleted(self.inbox.delete_expired().await.map_err(|error| error.to_string())),
        }
    }

    /// What happens before the call.
    async fn prepare(&self, key: &str, payload: u64, plan: Plan) {
        let Hosts { caller, server } = &self.hosts;
        match plan.before {
            Before::Nothing => {}
            Before::Cut => network::cut(caller, server),
            Before::Unreachable => network::partition(caller, server, plan.time),
            Before::Silent => {
                // Each takes a connection of its own.
                let checks = (0..self.kind.connections.get()).map(|_| self.inbox.check());
                join_all(checks).await;
                network::silence(caller, server);
            }
            Before::Held { lasts, commits } => {
                let row =
                    operator::HeldRow { consumer: self.kind.consumer, key: key.to_owned(), payload, lasts, commits };
                tokio::spawn(row.hold(Arc::clone(&self.world)));
            }
            Before::BeginFails(code) => self.world.server.fail_next(server, "BEGIN", code),
            Before::InsertFails(code) => self.world.server.fail_next(server, "INSERT INTO idempotency_inbox", code),
        }
    }
}

/// Does the work of a call that fails late: it waits for the row of that call.
async fn do_meanwhile(world: Arc<World>, consumer: &'static str, key: String) {
    sleep(Duration::from_millis(12)).await;
    // No other caller has this number.
    let number = FIRST_RIVAL + usize::try_from(world.next_fence()).expect("it is small");
    let rival = Caller::new(number, Kind::last(consumer), &world);
    rival.call(&key, 0, 1, Plan::plain(What::Attempt, Duration::from_secs(3))).await;
}

impl Plan {
    /// Whether its permanent failure is recorded late.
    fn fails_late(&self) -> bool {
        self.what == What::Attempt
            && self.case == Case::Fail(Class::Permanent)
            && self.on_failure == OnFailure::Late
            && self.before == Before::Nothing
    }

    fn is_unreachable(&self) -> bool {
        self.before == Before::Unreachable
            || self.fails_in_silence()
            || matches!(self.at_commit, AtCommit::Silent | AtCommit::Lost { unreachable: Duration::MAX, .. })
    }
}

pub fn fingerprint(payload: u64) -> Fingerprint {
    Fingerprint::of(payload.to_string().as_bytes())
}
