//! How the owners differ.

use std::time::Duration;

use history::inbox::PAYER;
use idempotent_sqs_postgres::OutagePolicy;

/// The settings of an owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Kind {
    /// The logical consumer.
    pub(crate) namespace: &'static str,
    /// The user of its sessions.
    pub(crate) user: User,
    /// What it does while Redis is unavailable.
    pub(crate) outage: OutagePolicy,
    /// Its way to Redis.
    pub(crate) redis: Way,
    /// The timeout of its database.
    pub(crate) timeout: Duration,
    /// Number of deliveries that it runs at once, on one connection.
    pub(crate) tasks: usize,
    /// Whether it runs no recovery of other work.
    pub(crate) parks: bool,
    /// In how many attempts it deletes expired rows once.
    pub(crate) cleanup_one_in: u32,
}

/// A way to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Steady,
    /// Its connections break.
    Breaking,
    /// It leads nowhere.
    None,
}

/// A user of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// Has every right and needs no password.
    App,
    /// Needs a password, which is replaced now and then.
    Payer,
    /// May have one session.
    Crowded,
}

impl User {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Payer => PAYER,
            Self::Crowded => "crowded",
        }
    }
}

/// Its keys are also those of [`INVOICES`].
pub(crate) const PAYMENTS: &str = "payments";

pub(crate) const INVOICES: &str = "invoices";

/// Its rows and records expire soon.
pub(crate) const BRIEF: &str = "brief";

pub(crate) const NAMESPACES: [&str; 3] = [PAYMENTS, INVOICES, BRIEF];

/// The encoding LATIN1 has no form for it.
pub(crate) const UNREPRESENTABLE: &str = "支払い";

/// How long other rows are kept.
pub(crate) const RETENTION: Duration = Duration::from_hours(28 * 24);

/// How long rows and records of [`BRIEF`] are kept.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(400);

const KIND: Kind = Kind {
    namespace: PAYMENTS,
    user: User::App,
    outage: OutagePolicy::Refuse,
    redis: Way::Steady,
    timeout: Duration::from_secs(1),
    tasks: 1,
    parks: false,
    cleanup_one_in: 4,
};

const SHORT: Duration = Duration::from_millis(300);

/// The owners that contend.
const KINDS: [Kind; 18] = [
    KIND,
    Kind { timeout: SHORT, ..KIND },
    Kind { redis: Way::Breaking, ..KIND },
    Kind { outage: OutagePolicy::Proceed, redis: Way::Breaking, ..KIND },
    Kind { outage: OutagePolicy::Proceed, redis: Way::Breaking, timeout: SHORT, ..KIND },
    Kind { outage: OutagePolicy::Proceed, redis: Way::None, ..KIND },
    Kind { parks: true, ..KIND },
    Kind { user: User::Payer, ..KIND },
    Kind { tasks: 2, ..KIND },
    Kind { user: User::Crowded, ..KIND },
    Kind { user: User::Crowded, namespace: INVOICES, ..KIND },
    Kind { namespace: INVOICES, ..KIND },
    Kind { namespace: INVOICES, outage: OutagePolicy::Proceed, redis: Way::Breaking, ..KIND },
    Kind { namespace: INVOICES, user: User::Payer, redis: Way::Breaking, ..KIND },
    Kind { namespace: INVOICES, timeout: SHORT, ..KIND },
    Kind { namespace: BRIEF, cleanup_one_in: 1, ..KIND },
    Kind { namespace: BRIEF, cleanup_one_in: 1, timeout: SHORT, ..KIND },
    Kind { namespace: UNREPRESENTABLE, ..KIND },
];

/// Number of owners of most kinds.
const COPIES: usize = 2;

/// The owners that contend, by their numbers.
pub(crate) fn owners() -> impl Iterator<Item = (usize, Kind)> {
    let all = (0..COPIES).flat_map(|_| KINDS).enumerate();
    // One of these has others of its kind, or would only fail.
    let is_only = |kind: &Kind| kind.user == User::Crowded || kind.tasks > 1 || kind.namespace == UNREPRESENTABLE;
    all.filter(move |(number, kind)| *number < KINDS.len() || !is_only(kind))
}

impl Kind {
    /// The kind of the owner that contends and whose sessions have this name.
    pub(crate) fn of(session: &str) -> Option<Self> {
        let number = session.strip_prefix("owner-")?.parse::<usize>().ok()?;
        owners().find(|(other, _)| *other == number).map(|(_, kind)| kind)
    }

    /// The owners of this namespace that finish each message, or deliver one while another owner is at work.
    pub(crate) fn last(namespace: &'static str) -> Self {
        Self { namespace, cleanup_one_in: u32::MAX, ..KIND }
    }

    /// How long its rows and records are kept.
    pub(crate) fn retention(self) -> Duration {
        retention(self.namespace)
    }
}

/// How long the rows of this consumer are kept.
pub(crate) fn retention(namespace: &str) -> Duration {
    if namespace == BRIEF { BRIEFLY } else { RETENTION }
}
