//! The axum server of `benches/endpoint` with a layer of another crate, each as in its README. The first argument names
//! the crate, the second one is the URL of Redis.

#[path = "../../endpoint/payments.rs"]
mod payments;

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::http::header::AUTHORIZATION;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::Config;
use idempotent::middleware::IdempotencyLayer;
use idempotent::valkey::ValkeyStore;
use ruts::store::redis::RedisStore;
use ruts::{CookieOptions, SessionLayer};
use tower_cookies::CookieManagerLayer;

type Fallible<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Fallible<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(url)) = (arguments.next(), arguments.next()) else {
        return Err("usage: endpoint CRATE REDIS_URL".into());
    };
    let payments = payments::router();
    let payments = match &*name {
        "idempotent" => idempotent(payments, &url).await?,
        "axum-idempotent" => axum_idempotent(payments, &url).await?,
        _ => return Err(format!("unknown crate {name}").into()),
    };
    Ok(payments::serve(payments).await?)
}

async fn idempotent(payments: Router, url: &str) -> Fallible<Router> {
    let store = ValkeyStore::with_url(url).prefix("payments").try_build().await?;
    let layer = IdempotencyLayer::new(store)
        .scope(|parts| parts.headers.get(AUTHORIZATION).and_then(|client| client.to_str().ok()).map(String::from));
    Ok(payments.layer(layer))
}

/// Its records are part of the session that the cookie names.
async fn axum_idempotent(payments: Router, url: &str) -> Fallible<Router> {
    let client = Client::new(Config::from_url(url)?, None, None, None);
    client.connect();
    client.wait_for_connect().await?;
    let store = Arc::new(RedisStore::new(Arc::new(client)).await?);
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .expire_after(24 * 60 * 60);
    Ok(payments
        .layer(IdempotentLayer::<RedisStore<Client>>::new(options))
        .layer(SessionLayer::new(store).with_cookie_options(CookieOptions::build().name("session")))
        .layer(CookieManagerLayer::new()))
}
