//! The settings of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::error::{Result, SqlError};
use super::value::{Type, Value};

/// The settings, by their names in lower case.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// With those of the transaction.
    current: BTreeMap<String, String>,
    /// Those that stay after its commit.
    session: BTreeMap<String, String>,
    /// Those that the session began with.
    initial: BTreeMap<String, String>,
    /// Settings of extensions that were set once. They are empty texts ever after.
    custom: BTreeSet<String>,
}

/// The timeouts, in milliseconds.
const TIMEOUTS: [&str; 7] = [
    "lock_timeout",
    "statement_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
    "client_connection_check_interval",
    "deadlock_timeout",
];

/// Other settings, and their values.
const OTHERS: [(&str, &str); 12] = [
    ("application_name", ""),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, MDY"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("intervalstyle", "postgres"),
    ("search_path", "\"$user\", public"),
    ("standard_conforming_strings", "on"),
    ("synchronous_commit", "on"),
    ("timezone", "UTC"),
];

/// A setting is changed until the end of the transaction, or of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    Transaction,
    Session,
}

impl Settings {
    /// Those that a session with this version begins with.
    pub(super) fn new(version: &str, read_only: bool) -> Self {
        let has_transaction_timeout = major(version) >= 17;
        let timeouts = TIMEOUTS.iter().filter(|name| has_transaction_timeout || **name != "transaction_timeout");
        let zero =
            |name: &&str| ((*name).to_owned(), if *name == "deadlock_timeout" { "1000" } else { "0" }.to_owned());
        let others = OTHERS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut initial: BTreeMap<_, _> = timeouts.map(zero).chain(others).collect();
        initial.insert("server_version".to_owned(), version.to_owned());
        if read_only {
            initial.insert("default_transaction_read_only".to_owned(), "on".to_owned());
        }
        Self { current: initial.clone(), session: initial.clone(), initial, custom: BTreeSet::new() }
    }

    /// Sets what the session begins with.
    pub(super) fn begin_with(&mut self, name: &str, value: &str) -> Result<()> {
        self.set(name, Some(value), Lasts::Session)?;
        self.initial = self.session.clone();
        Ok(())
    }

    /// Sets this value, or the one that the session began with.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>, lasts: Lasts) -> Result<()> {
        let name = name.to_lowercase();
        let is_custom = name.contains('.');
        if !is_custom && !self.initial.contains_key(&name) {
            let message = format!("unrecognized configuration parameter \"{name}\"");
            return Err(SqlError::new("42704", message).by("find_option"));
        }
        if name == "server_version" {
            return Err(SqlError::new("55P02", "parameter \"server_version\" cannot be changed"));
        }
        let value = match value {
            Some(value) if TIMEOUTS.contains(&name.as_str()) => Some(milliseconds(&name, value)?.to_string()),
            Some(value) if name == "default_transaction_read_only" => {
                let is_on = Value::parse(value, Type::Bool).map_err(|_| invalid(&name, value))?.is_true();
                Some(if is_on { "on" } else { "off" }.to_owned())
            }
            Some(value) => Some(value.to_owned()),
            None => self.initial.get(&name).cloned(),
        };
        if is_custom {
            self.custom.insert(name.clone());
        }
        let put = |map: &mut BTreeMap<String, String>| match &value {
            Some(value) => _ = map.insert(name.clone(), value.clone()),
            None => _ = map.remove(&name),
        };
        put(&mut self.current);
        if lasts == Lasts::Session {
            put(&mut self.session);
        }
        Ok(())
    }

    pub(super) fn reset_all(&mut self) {
        // These are not settings of the session alone.
        self.current = self.initial.clone();
        self.session = self.initial.clone();
    }

    /// The transaction has committed.
    pub(super) fn commit(&mut self) {
        self.current = self.session.clone();
    }

    /// What was set since `before` is undone.
    pub(super) fn roll_back(&mut self, before: Self) {
        let custom = std::mem::take(&mut self.custom);
        *self = Self { custom, ..before };
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let name = name.to_lowercase();
        let value = self.current.get(&name).map(String::as_str);
        value.or_else(|| self.custom.contains(&name).then_some(""))
    }

    /// As `SHOW` and `current_setting` return it.
    pub(super) fn shown(&self, name: &str) -> Option<String> {
        let value = self.get(name)?;
        if !TIMEOUTS.contains(&name.to_lowercase().as_str()) || value == "0" {
            return Some(value.to_owned());
        }
        let ms: u64 = value.parse().unwrap_or_default();
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
        let (unit, name) = units.into_iter().find(|(unit, _)| ms.is_multiple_of(*unit))?;
        Some(format!("{}{name}", ms / unit))
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some("on")
    }

    /// A timeout, unless it is 0.
    pub(super) fn timeout(&self, name: &str) -> Option<Duration> {
        let ms = self.get(name)?.parse().ok()?;
        (ms > 0).then(|| Duration::from_millis(ms))
    }
}

fn invalid(name: &str, value: &str) -> SqlError {
    SqlError::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\""))
}

fn milliseconds(name: &str, value: &str) -> Result<i32> {
    let digits = value.trim_end_matches(|unit: char| unit.is_ascii_alphabetic() || unit == ' ');
    let unit = match value[digits.len()..].trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(invalid(name, value)),
    };
    let number = digits.parse::<i64>().ok().and_then(|number| i32::try_from(number * unit).ok());
    let outside = || SqlError::new("22023", format!("{value} is outside the valid range for parameter \"{name}\""));
    number.filter(|ms| *ms >= 0).ok_or_else(outside)
}

/// The first number of a version.
pub(super) fn major(version: &str) -> u32 {
    version.split(|digit: char| !digit.is_ascii_digit()).next().and_then(|major| major.parse().ok()).unwrap_or(0)
}
