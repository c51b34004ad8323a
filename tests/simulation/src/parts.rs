//! Parts of the library on their own, after the function has ended and without its faults.

use crate::deployments::deploy;
use crate::inputs::read_inputs;
use crate::sharing::share_calls;

/// What is wrong with the parts. They depend on the seed alone.
pub async fn simulate_parts(seed: u64) -> Vec<String> {
    let parts =
        [("deployment", deploy(seed).await), ("shared calls", share_calls(seed).await), ("input", read_inputs(seed))];
    parts
        .into_iter()
        .flat_map(|(part, faults)| faults.into_iter().map(move |fault| format!("{part}: {fault}")))
        .collect()
}
