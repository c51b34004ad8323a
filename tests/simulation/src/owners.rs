//! Owners that contend for keys, before the function starts and without faults. They settle late, twice, and without a
//! claim, which the function does not do: so they reach the branches of the scripts that it does not reach. Then one of
//! them finds values that are not records.

use std::fs;
use std::path::Path;
use std::time::Duration;

use history::{History, RecordedStore, Rng, Value, call_with_other_values};
use idempotent_sqs::{Key, RedisStore};

use crate::logins::Logins;
use crate::plan::Plan;
use crate::redis::Cluster;

const CLIENTS: [&str; 4] = ["owners0", "owners1", "owners2", "owners3"];

const NAMESPACE: &str = "contention";

/// For how long they contend.
const LASTS: Duration = Duration::from_millis(300);

/// Returns the calls of the owners, and what is wrong with those for keys whose values are not records.
pub async fn contend(
    rng: Rng,
    plan: &Plan,
    redis: &Cluster,
    logins: &Logins,
    directory: &Path,
) -> (History, Vec<String>) {
    let directory = directory.join("owners");
    fs::create_dir(&directory).expect("a directory can be created");
    let store = |name| {
        let settings = logins.settings(plan, redis.servers[0].name(), name, NAMESPACE);
        RedisStore::new(&settings).expect("these settings are valid")
    };
    let client = |name| RecordedStore::new(store(name), &directory).expect("the directory is writable");
    history::contend(rng, CLIENTS.map(client).into(), LASTS).await;
    let name = |key: &Key| format!("{NAMESPACE}:{}", key.as_str());
    let get = async |key: &Key| redis.value(name(key).as_bytes());
    let put = async |key: &Key, value: &Value| redis.set_value(name(key).as_bytes(), value.clone());
    let wrong = call_with_other_values(&store("owners4"), get, put).await;
    (History::read(&directory).expect("the owners recorded their calls"), wrong)
}
