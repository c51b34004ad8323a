//! Owners that contend for keys, before the function starts and without faults. They settle late, twice, and without a
//! claim, which the function does not do: so they reach the branches of the scripts that it does not reach.

use std::fs;
use std::path::Path;
use std::time::Duration;

use history::{History, RecordedStore, Rng};
use idempotent_sqs::{RedisSettings, RedisStore};

use crate::logins::Logins;
use crate::network;
use crate::plan::Plan;

const CLIENTS: [&str; 4] = ["owners0", "owners1", "owners2", "owners3"];

/// For how long they contend.
const LASTS: Duration = Duration::from_millis(300);

/// Returns the calls of the owners.
pub async fn contend(rng: Rng, plan: &Plan, server: &str, logins: &Logins, directory: &Path) -> History {
    let directory = directory.join("owners");
    fs::create_dir(&directory).expect("a directory can be created");
    let client = |name| {
        let url = format!("redis://{}", network::address(server, name));
        let mut settings = RedisSettings::new(url.parse().expect("this is a valid URL"), "contention");
        settings.cluster = plan.servers > 1;
        settings.credentials = logins.source(name);
        let store = RedisStore::new(&settings).expect("these settings are valid");
        RecordedStore::new(store, &directory).expect("the directory is writable")
    };
    history::contend(rng, CLIENTS.map(client).into(), LASTS).await;
    History::read(&directory).expect("the owners recorded their calls")
}
