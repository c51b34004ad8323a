//! The function, with a store that records its calls in a file in the directory `HISTORY_DIRECTORY`. Its monotonic clock
//! is that of [`frozen_clock`], by the file `FROZEN_NS`.

mod frozen_clock;

use std::env;
use std::path::Path;

use history::RecordedStore;
use idempotent_sqs::config::{Config, Environment};
use idempotent_sqs::traces;
use idempotent_sqs::webhook::{Webhook, WebhookSettings};
use lambda_runtime::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    frozen_clock::follow(Path::new(&env::var("FROZEN_NS")?))?;
    traces::init(lambda_runtime::tracing::init_default_subscriber);
    let mut environment = Environment::from_process();
    let config = Config::read(&mut environment);
    let webhook = WebhookSettings::read(&mut environment, config.as_ref());
    let (config, webhook) = environment.finish(config.zip(webhook))?;
    let redis = config.store()?;
    let store = RecordedStore::new(redis.clone(), Path::new(&env::var("HISTORY_DIRECTORY")?))?;
    config.handler_with_store(store, &redis, Webhook::new(webhook)).serve().await
}
