//! What callers do after the function has ended.

use std::path::Path;

use history::History;

use crate::callers::{Answered, call};
use crate::closures::{OnceCall, run_once};
use crate::function::Shared;
use crate::own_records::{RowCall, run_with_rows};
use crate::plan::Plan;

/// What they did.
#[derive(Default)]
pub struct After {
    pub answered: Vec<Answered>,
    pub closures: Vec<OnceCall>,
    pub rows: Vec<RowCall>,
    pub row_history: History,
}

pub async fn after(plan: &Plan, history: &History, shared: &Shared, directory: &Path) -> After {
    let Shared { redis, records, logins, objects, .. } = shared;
    let answered = call(plan, history, redis, logins, objects).await;
    let closures = run_once(plan, records, logins).await;
    let (rows, row_history) = run_with_rows(plan, records, logins, directory).await;
    After { answered, closures, rows, row_history }
}
