//! The payments API that every endpoint serves, and what it counts. `peers/rust` has it too.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::routing::{get, post};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// How often the handler ran.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// How often a transaction was repeated, because another client had written the key.
pub(crate) static RETRIES: AtomicU64 = AtomicU64::new(0);

/// `POST /payments/{work_ms}`: a payment that takes this long.
pub(crate) fn router() -> Router {
    Router::new().route("/payments/{work_ms}", post(pay))
}

async fn pay(Path(work_ms): Path<u64>, _body: Bytes) -> (StatusCode, [(HeaderName, &'static str); 1], String) {
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    if work_ms > 0 {
        sleep(Duration::from_millis(work_ms)).await;
    }
    (StatusCode::CREATED, [(CONTENT_TYPE, "application/json")], format!("{{\"id\":\"pay_{run}\"}}"))
}

/// Serves the payments and `GET /counters` on a free port, which it prints, until the process is killed.
pub(crate) async fn serve(payments: Router) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?.port());
    axum::serve(listener, payments.route("/counters", get(counters))).await
}

/// Runs, retries, and the processor time of this process in ns.
async fn counters() -> String {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let ns = cpu.tv_sec * 1_000_000_000 + cpu.tv_nsec;
    format!("{} {} {ns}", RUNS.load(Ordering::Relaxed), RETRIES.load(Ordering::Relaxed))
}
