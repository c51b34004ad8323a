//! The store goes away while a request runs: docs/http.md. A request does not run beside another one that the store has
//! told it of, even if others run without the store. A run without effect is tried again after its lease.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join3;
use history::Rng;
use http::{Request, Response};
use http_body_util::Full;
use idempotent_sqs::{Claim, MemoryStore, WorkError, work_fn};
use idempotent_sqs_http::{IdempotencyLayer, Principal, StoreOutage};
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

use super::service::request;
use super::{TOLERANCE, WAIT_STEP};
use crate::own_records::HttpAnswer;

/// From now on, no call is executed.
fn lose(store: &FaultyStore<MemoryStore>) {
    for call in [StoreCall::Acquire, StoreCall::Settle] {
        store.always(call, Some(Fault::Refused));
    }
}

/// What is wrong with a request that comes while another one runs.
pub(super) async fn wrong_wait_without_store(rng: &mut Rng) -> Option<String> {
    let runs_unprotected = rng.happens(700);
    let takes = rng.ms(500..9000);
    let (comes, lost) = (rng.ms(100..400), rng.ms(100..12_000));
    let is_clear = lost.abs_diff(comes) > TOLERANCE && (lost < takes || lost > takes + WAIT_STEP + TOLERANCE);
    if !is_clear {
        return None;
    }
    let (store, runs) = (Arc::new(FaultyStore::new(MemoryStore::default())), Arc::new(AtomicUsize::new(0)));
    let outage = if runs_unprotected { StoreOutage::RunUnprotected } else { StoreOutage::Reject };
    let layer = IdempotencyLayer::builder(Arc::clone(&store), |_| Some(Principal::GLOBAL)).store_outage(outage);
    let layer = layer.wait(Duration::from_secs(20)).build();
    let begun = Arc::clone(&runs);
    let service = layer.layer(service_fn(move |_| {
        begun.fetch_add(1, Ordering::Relaxed);
        async move {
            sleep(takes).await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("paid"))))
        }
    }));
    let send = |after: Duration| {
        let service = service.clone();
        async move {
            sleep(after).await;
            let Ok(response) = service.oneshot(request("a payment")).await;
            HttpAnswer::of(response).await
        }
    };
    let loses = async {
        sleep(lost).await;
        lose(&store);
    };
    let (_, second, ()) = join3(send(Duration::ZERO), send(comes), loses).await;
    let shown = (second.status, second.is_replayed, runs.load(Ordering::Relaxed));
    let expected = match lost {
        // The store has not said that another one runs.
        _ if lost < comes && runs_unprotected => (200, false, 2),
        _ if lost < takes => (503, false, 1),
        _ => (200, true, 1),
    };
    (shown != expected).then(|| {
        format!("{shown:?}, not {expected:?}: comes after {comes:?}, lost after {lost:?}, takes {takes:?}, {outage:?}")
    })
}

/// What is wrong with the answer to a request whose work is busy and asks for a delay, once the store is gone.
pub(super) async fn wrong_retry_after(rng: &mut Rng) -> Option<String> {
    let (store, time, takes, asked) =
        (Arc::new(FaultyStore::new(MemoryStore::default())), rng.ms(5000..30_000), rng.ms(0..2000), rng.draw(0..60));
    let layer = IdempotencyLayer::builder(Arc::clone(&store), |_| Some(Principal::GLOBAL)).timeout(time).build();
    let work = work_fn(move |_: &Claim, _: &Request<Bytes>| {
        lose(&store);
        async move {
            sleep(takes).await;
            Err::<Vec<u8>, _>(WorkError::busy_after("in use", Duration::from_secs(asked)))
        }
    });
    let begun = Instant::now();
    let Ok(response) = layer.endpoint(work).oneshot(request("a payment")).await;
    let answer = HttpAnswer::of(response).await;
    // The lease is a second longer than the time.
    let remains = (time + Duration::from_secs(1)).saturating_sub(begun.elapsed());
    let expected = remains.max(Duration::from_secs(asked));
    let is_right = answer.retry_after_s.is_some_and(|after_s| {
        (expected..expected + Duration::from_millis(1100)).contains(&Duration::from_secs(after_s))
    });
    (answer.status != 503 || !is_right)
        .then(|| format!("{answer:?}, not in {expected:?}: {time:?}, {takes:?}, {asked} s"))
}
