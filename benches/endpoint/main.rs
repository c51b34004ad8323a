//! An axum server whose payments take effect once for each `Idempotency-Key`: the layer of `idempotent-sqs-http` over
//! the store that the first argument names. The second one is the URL of Redis.
//!
//! | store | |
//! |---|---|
//! | `none` | no layer: the floor |
//! | `lua` | `RedisStore`: requests that arrive together share one connection and a call of the script |
//! | `lua-pool` | `RedisStore`, with a connection and a call of the script for each request |
//! | `watch` | `WATCH`, `MULTI` and `EXEC` in place of the script, with a connection for each transaction |

mod payments;
mod pool;
mod record;
mod watch;

use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use benches::Fallible;
use idempotent_sqs::{RedisSettings, RedisStore, Store};
use idempotent_sqs_http::{IdempotencyLayer, Principal};

use pool::StorePool;
use watch::WatchStore;

/// For a connection, and for a reply.
const TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Fallible<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(store), Some(url)) = (arguments.next(), arguments.next()) else {
        return Err("usage: endpoint STORE REDIS_URL".into());
    };
    let mut settings = RedisSettings::new(url.parse()?, "payments");
    settings.timeout = TIMEOUT;
    let payments = payments::router();
    let payments = match &*store {
        "none" => payments,
        "lua" => payments.layer(layer(RedisStore::new(&settings)?)),
        "lua-pool" => payments.layer(layer(StorePool::new(settings))),
        "watch" => payments.layer(layer(WatchStore::new(&url)?)),
        _ => return Err(format!("unknown store {store}").into()),
    };
    Ok(payments::serve(payments).await?)
}

fn layer<S: Store>(store: S) -> IdempotencyLayer<S> {
    IdempotencyLayer::builder(store, |request| request.headers.get(AUTHORIZATION).map(Principal::new))
        .store_timeout(TIMEOUT)
        .build()
}
