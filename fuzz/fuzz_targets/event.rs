//! Any JSON as an event: it is refused whole, or every message has a name and the response names
//! only messages of the event, each once.

#![no_main]

use std::collections::HashSet;

use idempotent_sqs::disposition::Disposition;
use idempotent_sqs::sqs;
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|event: &str| {
    let Ok(event) = serde_json::from_str::<&RawValue>(event) else { return };
    let Ok(messages) = sqs::messages(event) else { return };
    let ids: HashSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    assert!(!ids.contains(""));
    let again = Disposition::Redeliver { after: None };
    let response = sqs::response(messages.iter().map(|message| (message, again)));
    let named: Vec<&str> = response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    assert_eq!(named.len(), ids.len());
    assert_eq!(named.into_iter().collect::<HashSet<_>>(), ids);
});
