//! What callers do after the function has ended.

use std::path::Path;

use history::{History, Jump};

use crate::callers::{Answered, call};
use crate::closures::{OnceCall, run_once};
use crate::function::Shared;
use crate::http::{HttpRun, send_requests};
use crate::own_records::{RowCall, run_with_rows};
use crate::plan::Plan;

/// What they did.
#[derive(Default)]
pub struct After {
    /// The results that callers got.
    pub answered: Vec<Answered>,
    /// The calls of closures.
    pub closures: Vec<OnceCall>,
    /// The calls of works with records of their own, and those of their stores.
    pub rows: Vec<RowCall>,
    pub row_history: History,
    /// The requests to services with the HTTP layer. `None` if the queue did not drain.
    pub http: Option<HttpRun>,
}

/// Runs the callers. Redis's clock jumped as `jumps` says.
pub async fn after(plan: &Plan, history: &History, jumps: &[Jump], shared: &Shared, directory: &Path) -> After {
    let Shared { redis, records, logins, objects, .. } = shared;
    let answered = call(plan, history, redis, logins, objects).await;
    let closures = run_once(plan, records, logins).await;
    let (rows, row_history) = run_with_rows(plan, records, logins, directory).await;
    let HttpRun { seen, outside, history } = send_requests(plan, records, logins, directory).await;
    let http = Some(HttpRun { seen, outside, history: history.with_jumps(jumps) });
    After { answered, closures, rows, row_history: row_history.with_jumps(jumps), http }
}
