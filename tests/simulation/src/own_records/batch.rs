//! Calls by a batch of one message, whose payload may be in S3 and cannot be read there.

use std::sync::Arc;

use harness::event::set_pointer;
use history::Rng;
use idempotent_sqs::idempotency::StoreError;
use idempotent_sqs::sqs::{Batch, BatchSettings, Message, MessageReport};
use idempotent_sqs::{Deadline, Idempotency, Policy};
use idempotent_sqs_testing::MemoryObjectStore;

use super::SharedStore;
use super::work::RowWork;

/// Why the payload of a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is not in its bucket.
    Deleted,
    /// Its bucket may not be read.
    Forbidden,
}

impl Missing {
    pub(super) fn of(rng: &mut Rng) -> Option<Self> {
        *rng.pick(&[None, None, None, Some(Self::Deleted), Some(Self::Forbidden)])
    }
}

pub(super) async fn send(
    (store, policy): (SharedStore, Policy),
    deadline: Deadline,
    key: &str,
    work: Arc<RowWork>,
    missing: Option<Missing>,
) -> Result<MessageReport, StoreError> {
    let mut message = Message::new("m1", work.payload.to_string());
    message.attributes.insert("Idempotency-Key".to_owned(), key.into());
    let mut settings = BatchSettings::default();
    settings.extended_client.objects = Some(Arc::new(MemoryObjectStore::default()));
    if let Some(missing) = missing {
        set_pointer(&mut message, "payloads", "none");
        settings.extended_client.buckets = Vec::from_iter((missing == Missing::Deleted).then(|| "payloads".to_owned()));
    }
    let batch = Batch::new(Idempotency::new(store, policy), work, settings);
    batch.run(&[message], deadline).await.map(|mut reports| reports.remove(0))
}
