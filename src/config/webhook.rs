//! The webhook.

use std::time::Duration;

use super::{Config, Environment};
use crate::webhook::{Url, WebhookSettings};

impl WebhookSettings {
    /// Reads the settings of the webhook. `config` determines how much of a response is kept. Returns `None` if a
    /// required setting is missing or invalid, or if `config` is `None`.
    pub fn read(environment: &mut Environment, config: Option<&Config>) -> Option<Self> {
        let url = environment.required("TARGET_URL", "the https:// address of the webhook");
        let timeout = environment.milliseconds("TARGET_TIMEOUT_MS", 1, Duration::from_secs(10));
        let connect_timeout = environment.milliseconds("TARGET_CONNECT_TIMEOUT_MS", 1, Duration::from_secs(2));
        let url = match Url::parse(&url?) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => url,
            Ok(_) | Err(_) => {
                environment.error("TARGET_URL is invalid: set it to the http:// or https:// address of the webhook");
                return None;
            }
        };
        let kept = config?.policy.max_kept_result();
        let connect_timeout = connect_timeout.min(timeout);
        let mut settings = Self::new(url);
        (settings.timeout, settings.connect_timeout) = (timeout, connect_timeout);
        settings.response_max_bytes = kept + 1;
        Some(settings)
    }
}
