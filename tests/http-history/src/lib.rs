//! Clients that repeat requests with few keys, services with the HTTP layer, and the verdict on what both saw.
//!
//! - `kind`, `service`: services with different settings
//! - `handler`, `runs`: what runs, by a plan, and how it ended
//! - `request`, `response`, `body`: requests in many spellings, and responses
//! - `store`, `objects`: the store of a service, which notes its answers, and large responses
//! - `clients`, `answer`: the clients, and what they got
//! - `tally`, `reported`, `logs`: what the services did, reported and logged
//! - `verdict`: what is wrong

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other value must fail the test")]

mod answer;
mod body;
mod clients;
#[cfg(test)]
mod hand_made;
mod handler;
mod kind;
mod logs;
mod objects;
mod reported;
mod request;
mod response;
mod runs;
mod service;
mod store;
mod tally;
mod verdict;

use std::array;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use harness::soon;
use harness::torture::tally::lock;
use history::{Outside, Rng};
use idempotent_sqs::RedisSettings;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use answer::Answer;
use clients::Requests;
use kind::{KINDS, LAST};
use service::Service;

pub use logs::record as record_lines;
pub use tally::Tally;
pub use verdict::Seen;

/// Number of services. The last one finishes each key.
pub const SERVICES: usize = KINDS.len() + 1;

const CLIENTS: usize = 12;

/// Number of keys that are finished at once.
const FINISHING: usize = 100;

/// Runs services and clients with faults, and then without, until each key has a response that is kept.
///
/// The stores of the services have the settings of their numbers, which are less than [`SERVICES`].
///
/// # Panics
/// If a service or a client does not end.
pub async fn contend(
    mut rng: Rng,
    settings: impl Fn(usize) -> RedisSettings,
    mut inject_fault: impl AsyncFnMut(&mut Rng),
    directory: &Path,
    lasts: Duration,
    tally: Arc<Tally>,
) -> (Seen, Outside) {
    let (requests, begun) = (Arc::new(Requests::default()), Instant::now());
    let service = |number, kind| Service::new(kind, &settings(number), directory, &tally);
    let services: [_; KINDS.len()] = array::from_fn(|number| service(number, KINDS[number]));
    let services = Arc::new(services);
    let watch = tokio::spawn(Arc::clone(&tally).watch_machine());
    let mut clients = JoinSet::new();
    for rng in [(); CLIENTS].map(|()| rng.fork()) {
        let (requests, services) = (Arc::clone(&requests), Arc::clone(&services));
        clients.spawn(async move { requests.contend(rng, &*services, begun, lasts).await });
    }
    while begun.elapsed() < lasts {
        sleep(rng.ms(10..40)).await;
        inject_fault(&mut rng).await;
    }
    soon(clients.join_all()).await;
    for service in &*services {
        soon(service.layer.drained()).await;
    }
    assert!(
        lock(&tally.runs).iter().all(|run| run.over_at.is_some()),
        "a handler runs after all services were drained"
    );
    let last = Arc::new(service(KINDS.len(), LAST));
    // The replies of Redis would be late if all finished at once.
    let turns = Arc::new(Semaphore::new(FINISHING));
    let mut clients = JoinSet::new();
    for identities in requests.identities() {
        let (requests, last, rng, turns) = (Arc::clone(&requests), Arc::clone(&last), rng.fork(), Arc::clone(&turns));
        clients.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            requests.finish(rng, &last, &identities).await
        });
    }
    let is_finished = soon(clients.join_all()).await.into_iter().all(|is_finished| is_finished);
    let sent = Arc::into_inner(requests).unwrap().sent();
    let (runs, effects) = (mem::take(&mut *lock(&tally.runs)), mem::take(&mut *lock(&tally.effects)));
    soon(last.layer.drained()).await;
    let (reports, lines) = (mem::take(&mut *lock(&tally.reports)), logs::take());
    let (asked, unprotected) = (mem::take(&mut *lock(&tally.asked)), mem::take(&mut *lock(&tally.unprotected)));
    let read = mem::take(&mut *lock(&tally.objects.read));
    watch.abort();
    let late = *lock(&tally.late);
    // A client that got the response of done work does not repeat its request.
    let is_done = |number: usize| {
        sent.iter()
            .any(|sent| matches!(sent.answer(), Some(Answer::Receipt { request, reply, .. }) if *request == number && reply.status == 201))
    };
    let done = runs.iter().filter(|run| is_done(run.plan.request)).map(|run| run.key.clone());
    let outside = Outside { deleted: done.collect(), effects, ..Outside::default() };
    (Seen { sent, runs, unprotected, reports, lines, asked, read, late, is_finished }, outside)
}
