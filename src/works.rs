//! The implementations of [`Work`](crate::work::Work) that come with the library.

#[cfg(feature = "postgres")]
mod inbox;
mod webhook;

#[cfg(feature = "postgres")]
pub use inbox::{Inbox, InboxError, InboxSettings, TransactionalWork};
pub use webhook::{Url, Webhook, WebhookSettings};
