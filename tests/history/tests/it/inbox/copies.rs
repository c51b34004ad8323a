//! Backfills beside the owners.
//!
//! - `last`: backfills after all else, whose copies are compared with the rows

mod last;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use harness::postgres::Base;
use harness::soon;
use history::{RecordedStore, Rng};
use idempotent_sqs::{RedisSettings, RedisStore};
use idempotent_sqs_postgres::backfill::{Backfill, BackfillSettings, BackfillStart};
use idempotent_sqs_postgres::{Database, DatabaseSettings};
use tokio::time::sleep;

use super::kind::{INVOICES, PAYMENTS};
use super::owner::KEPT_BYTES;
use super::world::World;

pub(crate) use last::{COPIER, Late, wrong_copies, wrong_copies_in_steps};

/// Copies the rows of two consumers.
#[derive(Debug)]
pub(crate) struct Copier {
    backfills: [Arc<Backfill<Arc<RecordedStore<RedisStore>>>>; 2],
    /// The processes in the histories.
    pub(crate) processes: [String; 2],
}

impl Copier {
    pub(crate) fn new(base: &Base, redis: &str, directory: &Path) -> Self {
        let recorded = [PAYMENTS, INVOICES].map(|namespace| {
            let settings = RedisSettings::new(redis.parse().unwrap(), namespace);
            let directory = directory.join(namespace);
            std::fs::create_dir_all(&directory).unwrap();
            Arc::new(RecordedStore::new(RedisStore::new(&settings).unwrap(), &directory).unwrap())
        });
        let processes = recorded.each_ref().map(|store| store.process().to_owned());
        let database = Database::new(&DatabaseSettings::new(base.url().parse().unwrap()));
        let [payments, invoices] = recorded;
        let backfills = [(PAYMENTS, payments), (INVOICES, invoices)]
            .map(|(namespace, store)| Arc::new(Backfill::new(store, database.clone(), settings(namespace))));
        Self { backfills, processes }
    }

    /// Copies all rows to an empty Redis.
    pub(crate) async fn copy_to_empty(&self, world: &World, rng: &mut Rng) {
        world.losses.flush().await;
        self.copy(rng).await;
    }

    /// Some runs are aborted.
    pub(crate) async fn copy(&self, rng: &mut Rng) {
        for backfill in &self.backfills {
            let backfill = Arc::clone(backfill);
            let run = tokio::spawn(async move { backfill.run(BackfillStart::Watermark, None, |_| ()).await });
            if rng.happens(300) {
                sleep(rng.ms(1..30)).await;
                run.abort();
            } else {
                // The server may have ended its session.
                let _ended = soon(run).await.unwrap();
            }
        }
    }
}

/// Results above the limit of the owners are not copied.
fn settings(namespace: &str) -> BackfillSettings {
    let mut settings = BackfillSettings::new(namespace);
    (settings.result_max_bytes, settings.overlap) = (KEPT_BYTES, Duration::ZERO);
    settings
}
