//! A payments API that pays once for each `Idempotency-Key`. `README.md` shows how to try it.
//!
//! | variable | default | |
//! |---|---|---|
//! | `PORT` | 3000 | port on loopback; 0 takes a free one |
//! | `REDIS_URL` | `redis://127.0.0.1:6379` | the store of idempotency records |
//! | `PAYMENTS_FILE` | `payments.jsonl` | gets a line of JSON for each payment |
//! | `WORK_MS` | 0 | how long a payment takes, ms |

mod payments;
mod routes;

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use idempotent_sqs::{RedisSettings, RedisStore};
use idempotent_sqs_http::{IdempotencyLayer, Principal};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::sleep;

use payments::Payments;
use routes::Api;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let variable = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let work = Duration::from_millis(variable("WORK_MS", "0").parse()?);
    let timeout = work + Duration::from_secs(5);
    let payments = Payments::open(variable("PAYMENTS_FILE", "payments.jsonl").into())?;
    let url = variable("REDIS_URL", "redis://127.0.0.1:6379").parse()?;
    let store = RedisStore::new(&RedisSettings::new(url, "axum-payments"))?;

    let layer = IdempotencyLayer::builder(store, |request| principal(&request.headers))
        // If the process is killed, retries get 409 for this long.
        .timeout(timeout)
        .build();

    // `layer` would also apply to unknown paths, which need no key.
    let router = routes::router(Arc::new(Api { payments, work })).route_layer(layer.clone());
    let listener = TcpListener::bind(("127.0.0.1", variable("PORT", "3000").parse()?)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let (stopping, stopped) = oneshot::channel::<()>();
    let stop = async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        drop(stopping);
    };
    let too_late = async move {
        // An error, because the sender is dropped.
        let _stopping = stopped.await;
        sleep(timeout).await;
    };
    tokio::select! {
        served = axum::serve(listener, router).with_graceful_shutdown(stop) => served?,
        // A client that does not finish its request would keep the server running.
        () = too_late => {}
    }
    // Payments whose clients have disconnected.
    layer.drained().await;
    Ok(())
}

/// The header `Authorization`, as a static API key: the same in every retry. With tokens that are refreshed, it would
/// be the account, from an extension that the authentication outside of the layer inserts. Requests without the header
/// share the principal "anonymous", and two of them are rejected.
fn principal(headers: &HeaderMap) -> Option<Principal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Some(Principal::new("anonymous")),
        (Some(value), None) => Some(Principal::new([b"authorization ", value.as_bytes()].concat())),
        (Some(_), Some(_)) => None,
    }
}
