//! Owners that contend for records in memory, which must be what the state machine says.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use history::{Allowances, History, RecordedStore, Report, Rng};
use idempotent_sqs::MemoryStore;

/// Number of clients, which share the records.
const CLIENTS: usize = 3;

/// For how long they contend.
const LASTS: Duration = Duration::from_millis(300);

/// What is wrong with the records of this seed.
pub async fn contend_in_memory(seed: u64, directory: &Path) -> Vec<String> {
    let directory = directory.join("memory");
    fs::create_dir(&directory).expect("a directory can be created");
    let store = Arc::new(MemoryStore::default());
    let client = |_| RecordedStore::new(Arc::clone(&store), &directory).expect("the directory is writable");
    history::contend(Rng::new(seed ^ 0x3e30), (0..CLIENTS).map(client).collect(), LASTS).await;
    let history = History::read(&directory).expect("the owners recorded their calls");
    Report::of_calls(&history, Allowances::EXACT).faults().collect()
}
