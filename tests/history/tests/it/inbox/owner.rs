//! An owner: a process with its own store, database and inbox, on its own way to the server.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::front::Front;
use harness::torture::tally::lock;
use harness::with;
use history::inbox::Passwords;
use history::{RecordedStore, monotonic_us};
use idempotent_sqs::idempotency::Recovery;
use idempotent_sqs::{Deadline, Delivery, Fingerprint, Idempotency, Key, Policy, RedisSettings, RedisStore};
use idempotent_sqs_postgres::{Database, DatabaseSettings, Inbox, InboxSettings, OptionalStore};
use tokio::time::Instant;

use super::control::Control;
use super::kind::{BRIEF, BRIEFLY, Kind, User, Way};
use super::plan::{Before, Plan};
use super::tally::{Message, Returned, Sent};
use super::watched::Watched;
use super::work::{Input, Worker};
use super::world::World;

/// Number of attempts after which a failure is permanent.
pub(crate) const MAX_ATTEMPTS: u8 = 4;

/// Largest result that is kept in a record.
pub(crate) const KEPT_BYTES: usize = 100;

/// How late each reply is of a server that is slow.
const SLOW: Duration = Duration::from_millis(60);

/// How much longer than the deadline a lease lasts.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

/// Where an owner finds the servers.
pub(crate) struct Ways<'a> {
    /// The URL of Redis, and that of the way whose connections break.
    pub(crate) redis: [&'a str; 2],
    /// The name of the database.
    pub(crate) database: &'a str,
    /// The directory of the recorded calls.
    pub(crate) directory: &'a Path,
    pub(crate) passwords: &'a Passwords,
}

pub(crate) struct Owner {
    pub(crate) number: usize,
    pub(crate) kind: Kind,
    world: Arc<World>,
    pub(crate) front: Arc<Front>,
    pub(crate) store: Arc<RecordedStore<RedisStore>>,
    pub(crate) inbox: Inbox<Worker>,
}

impl Owner {
    pub(crate) async fn new(number: usize, kind: Kind, world: &Arc<World>, ways: &Ways<'_>) -> Self {
        let nowhere = format!("redis://127.0.0.1:{}", world.closed_port);
        let (redis, redis_ms) = match kind.redis {
            Way::Steady => (ways.redis[0], 1000),
            Way::Breaking => (ways.redis[1], 100),
            Way::None => (nowhere.as_str(), 100),
        };
        let redis_timeout = Duration::from_millis(redis_ms);
        let settings = with!(RedisSettings::new(redis.parse().unwrap(), kind.namespace), timeout = redis_timeout);
        // Each consumer has its own records, and so its own history.
        let directory = ways.directory.join(kind.namespace);
        std::fs::create_dir_all(&directory).unwrap();
        let store = Arc::new(RecordedStore::new(RedisStore::new(&settings).unwrap(), &directory).unwrap());
        let front = Arc::new(Front::to(world.port).await);
        let (user, port, name) = (kind.user.name(), front.port, ways.database);
        let url = format!("postgres://{user}@127.0.0.1:{port}/{name}?application_name=owner-{number}");
        let settings = with!(
            DatabaseSettings::new(url.parse().unwrap()),
            timeout = kind.timeout,
            connections = NonZeroUsize::MIN,
            credentials =
                (kind.user == User::Payer).then(|| Arc::new(ways.passwords.source(None, Duration::ZERO)) as _),
        );
        let database = Database::new(&settings);
        let settings = with!(
            InboxSettings::new(kind.namespace),
            cleanup_one_in = NonZeroU32::new(kind.cleanup_one_in).unwrap(),
            retention = kind.retention(),
        );
        let inbox = Inbox::new(Worker(Arc::clone(world)), database, settings);
        Self { number, kind, world: Arc::clone(world), front, store, inbox }
    }

    fn policy(&self) -> Policy {
        let recovery = if self.kind.parks { Recovery::Park } else { Recovery::Rerun };
        let retention = if self.kind.namespace == BRIEF { BRIEFLY } else { Policy::default().retention };
        with!(
            Policy::default(),
            max_attempts = MAX_ATTEMPTS,
            lease_grace = GRACE,
            result_max_bytes = KEPT_BYTES,
            recovery = recovery,
            retention = retention,
        )
    }

    /// Delivers the message once. Returns what that returned, or nothing if it was dropped.
    pub(crate) async fn deliver(&self, message: &Message, plan: Plan) -> Option<Returned> {
        let held = self.prepare(message, plan).await;
        let deadline = Deadline::within(plan.time);
        let after_us = |at: Instant| u64::try_from(at.saturating_duration_since(Instant::now()).as_micros()).unwrap();
        let (begun_us, control) = (monotonic_us(), Arc::new(Control::default()));
        let delivery = {
            let mut sent = lock(&self.world.tally.sent);
            sent.push(Sent {
                message: message.clone(),
                owner: self.number,
                kind: self.kind,
                plan,
                begun_us,
                work_us: begun_us + after_us(deadline.work),
                end_us: begun_us + after_us(deadline.end),
                calls: Vec::new(),
                returned: None,
                ended_us: u64::MAX,
            });
            sent.len() - 1
        };
        let (message, front) = (message.clone(), Arc::clone(&self.front));
        let delivered = Delivery::new(Key::new(&message.key).unwrap())
            .fingerprint(fingerprint(message.payload))
            .message_id(&format!("message-{}", message.id))
            .deadline(deadline);
        let input = Input { delivery, message, plan, front, control: Arc::clone(&control) };
        let calls = Arc::new(Mutex::default());
        let watched = Watched { store: Arc::clone(&self.store), calls: Arc::clone(&calls) };
        let idempotency = Idempotency::new(OptionalStore::new(watched, self.kind.outage), self.policy());
        let returned = control.run(idempotency.run(&delivered, &self.inbox, &input)).await.map(Returned::of);
        control.end();
        {
            let sent = &mut lock(&self.world.tally.sent)[delivery];
            sent.ended_us = monotonic_us();
            (sent.calls, sent.returned) = (std::mem::take(&mut *lock(&calls)), returned.clone());
        }
        if let Some(held) = held {
            held.release(&self.world).await;
        }
        self.restore();
        returned
    }

    /// What happens before the delivery.
    async fn prepare(&self, message: &Message, plan: Plan) -> Option<super::held::HeldRow> {
        match plan.before {
            Before::Nothing => {}
            Before::Cut => self.front.cut(),
            Before::Silent => self.front.freeze(),
            Before::Terminated => {
                let end = format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'owner-{}'",
                    self.number
                );
                self.world.operator.rows(&end).await;
            }
            Before::Unreachable => {
                self.front.forward_to(self.world.closed_port);
                self.front.cut();
            }
            Before::Slow => self.front.delay_replies(SLOW),
            Before::Held(held) => return super::held::HeldRow::insert(&self.world, message, held).await,
        }
        None
    }

    /// The way to the server is as before.
    fn restore(&self) {
        self.front.drop_replies(false);
        self.front.drop_requests(false);
        self.front.delay_replies(Duration::ZERO);
        self.front.forward_to(self.world.port);
    }
}

pub(crate) fn fingerprint(payload: u8) -> Fingerprint {
    Fingerprint::of(&[payload])
}
