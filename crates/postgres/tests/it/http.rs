//! HTTP requests whose responses commit with their effects: an inbox as the work of an endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use idempotent_sqs::{Claim, MemoryStore, Store, WorkError};
use idempotent_sqs_http::{IdempotencyLayer, Principal, encode_response};
use idempotent_sqs_postgres::{Transaction, TransactionalWork};
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tower::ServiceExt;

use harness::postgres::Base;

use crate::fixture::{EFFECTS, ROWS, base, database, inbox};

/// Inserts a row into `effects` and answers with 201. Fails first, after the effect, if it is set.
#[derive(Default)]
struct Pay {
    fails: AtomicBool,
}

impl TransactionalWork<Request<Bytes>> for Pay {
    async fn run(&self, transaction: &Transaction, claim: &Claim, _: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        let fence = i64::try_from(claim.fence().0).unwrap();
        let insert = "INSERT INTO effects (key, fence) VALUES ($1, $2)";
        transaction.execute(insert, &[&claim.key().as_str(), &fence]).await?;
        if self.fails.swap(false, Ordering::SeqCst) {
            return Err(WorkError::retryable("refused"));
        }
        let response = Response::builder().status(201).header("location", "/payments/1").body(format!("fence {fence}"));
        Ok(encode_response(&response.unwrap()))
    }
}

/// Sends a request to an endpoint on this store. Returns status, whether it is a replay, and the body.
async fn post(base: &Base, store: impl Store + 'static, pay: Pay, body: &'static str) -> (u16, bool, Bytes) {
    let layer = IdempotencyLayer::builder(store, |_| Some(Principal::GLOBAL)).build();
    let endpoint = layer.endpoint(inbox(pay, database(&base.url())));
    let request = Request::post("/payments").header("idempotency-key", "pay_1").body(Full::from(body)).unwrap();
    let (head, body) = endpoint.oneshot(request).await.unwrap().into_parts();
    let is_replayed = head.headers.contains_key("idempotent-replayed");
    (head.status.as_u16(), is_replayed, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn a_response_commits_with_its_effect_and_is_replayed_though_the_store_lost_its_record() {
    let base = base().await;
    let (status, is_replayed, body) = post(&base, MemoryStore::default(), Pay::default(), "12.50").await;
    assert_eq!((status, is_replayed), (201, false));
    let again = post(&base, MemoryStore::default(), Pay::default(), "12.50").await;
    assert_eq!(again, (201, true, body));
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (1, 1));
}

#[tokio::test]
async fn another_request_is_a_mismatch_though_the_store_lost_its_record() {
    let base = base().await;
    post(&base, MemoryStore::default(), Pay::default(), "12.50").await;
    let store = Arc::new(MemoryStore::default());
    for _ in 0..2 {
        let (status, ..) = post(&base, Arc::clone(&store), Pay::default(), "99.00").await;
        assert_eq!((status, base.count(EFFECTS).await), (422, 1));
    }
    assert_eq!(post(&base, store, Pay::default(), "12.50").await.0, 201);
}

#[tokio::test]
async fn the_effect_of_a_failed_request_is_rolled_back_and_a_retry_runs() {
    let base = base().await;
    let fails = Pay { fails: AtomicBool::new(true) };
    let (status, ..) = post(&base, MemoryStore::default(), fails, "12.50").await;
    assert_eq!((status, base.count(ROWS).await, base.count(EFFECTS).await), (503, 0, 0));
    let (status, is_replayed, _) = post(&base, MemoryStore::default(), Pay::default(), "12.50").await;
    assert_eq!((status, is_replayed, base.count(EFFECTS).await), (201, false, 1));
}

#[tokio::test]
async fn a_committed_response_reaches_its_client_though_the_store_is_gone() {
    let base = base().await;
    let store = FaultyStore::new(MemoryStore::default());
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let (status, is_replayed, _) = post(&base, store, Pay::default(), "12.50").await;
    assert_eq!((status, is_replayed, base.count(EFFECTS).await), (201, false, 1));
}
