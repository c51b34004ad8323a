//! A payments API on AWS Lambda that pays once for each `Idempotency-Key`. `README.md` shows how to try it.
//!
//! | variable | default | |
//! |---|---|---|
//! | `REDIS_URL` | `redis://127.0.0.1:6379` | the store of idempotency records |
//! | `PAYMENTS_FILE` | `/tmp/payments.jsonl` | gets a line of JSON for each payment |
//! | `WORK_MS` | 0 | how long a payment takes, ms |

mod payments;
mod principal;
mod routes;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::{Deadline, RedisSettings, RedisStore};
use idempotent_sqs_http::IdempotencyLayer;
use lambda_http::{Error, RequestExt};

use payments::Payments;
use routes::Api;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_http::tracing::init_default_subscriber();
    let variable = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let work = Duration::from_millis(variable("WORK_MS", "0").parse()?);
    let payments = Payments::open(variable("PAYMENTS_FILE", "/tmp/payments.jsonl").into())?;
    let url = variable("REDIS_URL", "redis://127.0.0.1:6379").parse()?;
    let store = RedisStore::new(&RedisSettings::new(url, "lambda-http-payments"))?;

    let layer = IdempotencyLayer::builder(store, principal::of)
        // The process is frozen after its response, so nothing may run on.
        .spawn(false)
        // The answer and the record come before Lambda kills the process.
        .deadline(|request| request.lambda_context_ref().map(|context| Deadline::at(context.deadline())))
        .build();

    // `layer` would also apply to unknown paths, which need no key.
    let router = routes::router(Arc::new(Api { payments, work })).route_layer(layer);
    lambda_http::run(router).await
}
