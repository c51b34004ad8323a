//! Reads settings one by one, and keeps a sentence on each that is of no use.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::ConfigError;

/// Reads settings one by one and collects their faults.
pub(super) struct Reader<L> {
    pub(super) lookup: L,
    pub(super) faults: Vec<String>,
}

impl<L: Fn(&str) -> Option<String>> Reader<L> {
    /// What is set to nothing counts as not set: templates set empty defaults.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.lookup)(name).filter(|value| !value.trim().is_empty())
    }

    pub(super) fn required(&mut self, name: &str, example: &str) -> Option<String> {
        let value = self.get(name);
        if value.is_none() {
            self.fault(&format!("{name} is missing: set it to {example}"));
        }
        value
    }

    pub(super) fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, name: &str, example: &str) -> Option<T> {
        match self.get(name)?.trim().parse() {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fault(&format!("{name} is not usable ({fault}): set it to {example}"));
                None
            }
        }
    }

    pub(super) fn within<T>(&mut self, name: &str, range: RangeInclusive<T>, default: T) -> T
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let Some(value) = self.get(name) else { return default };
        match value.trim().parse() {
            Ok(number) if range.contains(&number) => number,
            Ok(_) | Err(_) => {
                let (least, most) = range.into_inner();
                self.fault(&format!("{name} is {value:?}: set it to a whole number from {least} to {most}"));
                default
            }
        }
    }

    pub(super) fn seconds(&mut self, name: &str, default: Duration) -> Duration {
        Duration::from_secs(self.within(name, 1..=LONGEST_SECONDS, default.as_secs()))
    }

    pub(super) fn milliseconds(&mut self, name: &str, least: u64, default: Duration) -> Duration {
        let default = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.within(name, least..=LONGEST_MS, default))
    }

    pub(super) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)], default: T) -> T {
        let Some(value) = self.get(name) else { return default };
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == value.trim()) {
            return *choice;
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        self.fault(&format!("{name} is {value:?}: set it to {}", words.join(" or ")));
        default
    }

    pub(super) fn fault(&mut self, fault: &str) {
        if !self.faults.iter().any(|known| known == fault) {
            self.faults.push(fault.to_owned());
        }
    }

    pub(super) fn finish<T>(self, settings: Option<T>) -> Result<T, ConfigError> {
        match settings {
            Some(settings) if self.faults.is_empty() => Ok(settings),
            Some(_) | None => Err(ConfigError { faults: self.faults }),
        }
    }
}

pub(super) const SECRET_ARN: &str = "arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME";

pub(super) const TRUE_OR_FALSE: &[(&str, bool)] = &[("true", true), ("false", false)];

/// A function runs for 15 minutes at most, so nothing in it can wait longer.
const LONGEST_MS: u64 = 900_000;

/// Ten years: beyond any queue's and any auditor's memory, and far from what overflows in Redis.
const LONGEST_SECONDS: u64 = 315_360_000;
