//! How the services differ.

use std::ops::Range;
use std::time::Duration;

use idempotent_sqs_http::{KeyRule, ServerErrors, StoreOutage};

use crate::service::GRACE;
use crate::store::Keeping;

/// The settings of a service, and what it serves.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(crate) struct Kind {
    pub(crate) serves: Serves,
    /// Which requests need a key, if not only POST and PATCH.
    pub(crate) key_rule: Option<KeyRule>,
    /// Whether its handlers run in tasks of their own.
    pub(crate) spawns: bool,
    /// How long a request waits for a running one.
    pub(crate) wait: Duration,
    /// How much longer than the deadline a lease lasts.
    pub(crate) lease_grace: Duration,
    /// How long a request waits for the store.
    pub(crate) store_timeout: Duration,
    pub(crate) store_outage: StoreOutage,
    pub(crate) server_errors: ServerErrors,
    pub(crate) mismatch_status: u16,
    /// Whether it drops a header that others keep.
    pub(crate) drops_node: bool,
    /// Whether it stores its responses in a format that the others do not know.
    pub(crate) is_next_release: bool,
    /// Whether it keeps large responses as objects.
    pub(crate) has_objects: bool,
    /// Whether it runs no recovery.
    pub(crate) parks: bool,
    /// Whether it has the default policy.
    pub(crate) has_defaults: bool,
}

/// What answers the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    Handler,
    /// A handler in a layer in the same layer.
    LayerTwice,
    /// A work.
    Endpoint,
    /// A work in a layer, which does not run: both need the key.
    EndpointInLayer,
}

pub(crate) const KIND: Kind = Kind {
    serves: Serves::Handler,
    key_rule: None,
    spawns: true,
    wait: Duration::ZERO,
    lease_grace: GRACE,
    store_timeout: Duration::from_millis(300),
    store_outage: StoreOutage::Reject,
    server_errors: ServerErrors::Uncertain,
    mismatch_status: 422,
    drops_node: false,
    is_next_release: false,
    has_objects: false,
    parks: false,
    has_defaults: false,
};

const SHORT: Duration = Duration::from_millis(30);

/// The services that keep large responses as objects.
pub(crate) const OBJECTS: Range<usize> = 7..10;

/// The services that contend.
pub(crate) const KINDS: [Kind; 17] = [
    KIND,
    Kind { spawns: false, key_rule: Some(KeyRule::Optional), store_outage: StoreOutage::RunUnprotected, ..KIND },
    // Gives up before the store does.
    Kind { wait: Duration::from_millis(80), store_timeout: SHORT, ..KIND },
    Kind { serves: Serves::Endpoint, ..KIND },
    Kind { serves: Serves::Endpoint, wait: Duration::from_millis(60), ..KIND },
    Kind { serves: Serves::LayerTwice, ..KIND },
    Kind { store_outage: StoreOutage::RunUnprotected, store_timeout: SHORT, ..KIND },
    // Gives up while a slow object is read.
    Kind {
        has_objects: true,
        store_outage: StoreOutage::RunUnprotected,
        store_timeout: Duration::from_millis(150),
        ..KIND
    },
    Kind { has_objects: true, ..KIND },
    Kind { has_objects: true, spawns: false, ..KIND },
    Kind { parks: true, ..KIND },
    Kind { has_defaults: true, ..KIND },
    Kind { server_errors: ServerErrors::Keep, mismatch_status: 400, drops_node: true, ..KIND },
    Kind { is_next_release: true, ..KIND },
    Kind { serves: Serves::EndpointInLayer, key_rule: Some(KeyRule::Required), ..KIND },
    // Loses the store while it waits for a running request.
    Kind { wait: Duration::from_millis(250), store_outage: StoreOutage::RunUnprotected, ..KIND },
    // Some leases are not released, and last for more than a second, whatever the deadline is.
    Kind { serves: Serves::Endpoint, lease_grace: Duration::from_millis(1500), ..KIND },
];

/// The service that finishes each key.
pub(crate) const LAST: Kind = Kind { wait: Duration::from_secs(2), key_rule: Some(KeyRule::Required), ..KIND };

impl Kind {
    pub(crate) fn is_endpoint(self) -> bool {
        self.serves == Serves::Endpoint
    }

    /// Largest response that is kept with its body. The default is in the documentation of `default_policy`.
    pub(crate) fn kept_bytes(self) -> usize {
        if self.has_defaults { 64 << 10 } else { 1000 }
    }

    /// How the records of its requests are kept. The defaults are in the documentation of `default_policy`.
    pub(crate) fn keeping(self) -> Keeping {
        let retention = Duration::from_hours(24);
        let (max_attempts, failed_retention) =
            if self.has_defaults { (10, Duration::from_hours(1)) } else { (3, Duration::from_millis(100)) };
        Keeping { retention, max_attempts, failed_retention }
    }

    /// Whether the release of this claim is not sent, so that its lease lasts.
    pub(crate) fn holds(self, fence: u64) -> bool {
        self.lease_grace > GRACE && fence.is_multiple_of(2)
    }

    /// Whether a response with this status is kept for the retries.
    pub(crate) fn keeps(self, status: u16) -> bool {
        match status {
            429 | 503 => false,
            101 | 200..500 => true,
            500..600 => self.server_errors == ServerErrors::Keep,
            _unknown => false,
        }
    }
}
