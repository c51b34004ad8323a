//! Parts of the library on their own, after the function has ended and without its faults.

use std::path::Path;

use crate::backfill::copy_rows;
use crate::batches::run_batches;
use crate::deleted::deliver_deleted;
use crate::deployments::deploy;
use crate::disconnects::disconnect_clients;
use crate::duplicates::run_equal_messages;
use crate::freezes::freeze_works;
use crate::identity::{read_secrets, sign_tokens, wait_for_login};
use crate::inbox::use_inbox;
use crate::inputs::read_inputs;
use crate::late_results::find_results;
use crate::letters::write_letters;
use crate::memory::contend_in_memory;
use crate::records::view_records;
use crate::redrives::redrive_letters;
use crate::regions::send_to_regions;
use crate::settings::read_settings;
use crate::shards::run_on_shards;
use crate::sharing::share_calls;
use crate::store_errors::fail_store;
use crate::times::run_in_little_time;
use crate::visibility::change_visibility;

/// What is wrong with the parts. They depend on the seed alone.
pub async fn simulate_parts(seed: u64, directory: &Path) -> Vec<String> {
    let parts = [
        ("deployment", deploy(seed).await),
        ("shared calls", share_calls(seed).await),
        ("records", Box::pin(view_records(seed)).await),
        ("memory", contend_in_memory(seed, directory).await),
        ("freeze", freeze_works(seed).await),
        ("visibility", change_visibility(seed).await),
        ("letter", write_letters(seed).await),
        ("letters command", Box::pin(redrive_letters(seed)).await),
        ("store error", Box::pin(fail_store(seed)).await),
        ("batch", Box::pin(run_batches(seed)).await),
        ("duplicates", Box::pin(run_equal_messages(seed)).await),
        ("time", run_in_little_time(seed).await),
        ("shards", Box::pin(run_on_shards(seed)).await),
        ("deleted payload", Box::pin(deliver_deleted(seed)).await),
        ("late result", Box::pin(find_results(seed)).await),
        ("disconnect", Box::pin(disconnect_clients(seed)).await),
        ("region", send_to_regions(seed).await),
        ("token", sign_tokens(seed).await),
        ("secret", read_secrets(seed).await),
        ("silent login", wait_for_login().await),
        ("inbox", Box::pin(use_inbox(seed)).await),
        ("backfill", Box::pin(copy_rows(seed)).await),
        ("input", read_inputs(seed)),
        ("settings", read_settings(seed)),
    ];
    parts
        .into_iter()
        .flat_map(|(part, faults)| faults.into_iter().map(move |fault| format!("{part}: {fault}")))
        .collect()
}
