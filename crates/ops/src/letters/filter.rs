//! Which letters a command concerns.

use std::time::{Duration, SystemTime};

use super::letter::Letter;

/// Filters, all of which a letter must match. Without any, every letter matches.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Filter {
    pub(crate) outcomes: Vec<String>,
    pub(crate) key: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) older_than: Option<Duration>,
    pub(crate) newer_than: Option<Duration>,
    pub(crate) ids: Vec<String>,
}

impl Filter {
    pub(crate) fn matches_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the letter matches, with its age at this time.
    pub(crate) fn matches(&self, letter: &Letter, now: SystemTime) -> bool {
        // A letter without a time matches neither filter by age.
        let age = letter.age(now);
        (self.outcomes.is_empty() || self.outcomes.iter().any(|outcome| outcome == letter.outcome()))
            && self.key.as_ref().is_none_or(|key| letter.key.as_ref() == Some(key))
            && self.reason.as_ref().is_none_or(|text| letter.reason().contains(text))
            && self.older_than.is_none_or(|limit| age.is_some_and(|age| age > limit))
            && self.newer_than.is_none_or(|limit| age.is_some_and(|age| age < limit))
            && (self.ids.is_empty() || self.ids.iter().any(|id| letter.has_id(id)))
    }
}

/// Parses a whole number with a unit, as `30min`.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("min", 60), ("h", 3_600), ("d", 86_400)];
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = units.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds);
    let duration = seconds.zip(number.parse::<u64>().ok()).and_then(|(seconds, number)| number.checked_mul(seconds));
    duration.map(Duration::from_secs).ok_or_else(|| "write a whole number and s, min, h or d, such as 30min".to_owned())
}
