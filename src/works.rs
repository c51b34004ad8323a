//! The implementations of [`Work`](crate::work::Work) that come with the library.

mod webhook;

pub use webhook::{Url, Webhook, WebhookSettings};
