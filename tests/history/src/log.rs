//! What one server has written, by its own log.

use std::collections::HashSet;

use crate::event::{Answer, Call, Hex};
use crate::history::Operation;

/// What marks the record that a call wrote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mark {
    key: String,
    /// First byte of the record.
    state: u8,
    owner: Hex<8>,
    /// Of a claim. A settled record may keep a higher one.
    fence: Option<u64>,
}

/// The records that one server has written.
#[derive(Clone, Debug, Default)]
pub struct Log {
    marks: HashSet<Mark>,
    /// The owners of these records, by key.
    owners: HashSet<(String, Hex<8>)>,
}

impl Log {
    /// The records in these commands, whose keys begin with `namespace:`.
    #[must_use]
    pub fn of(namespace: &str, commands: &[Vec<Vec<u8>>]) -> Self {
        let written = commands.iter().filter_map(|command| match &**command {
            [set, key, record, ..] if set.eq_ignore_ascii_case(b"SET") => {
                let key = std::str::from_utf8(key).ok()?.strip_prefix(namespace)?.strip_prefix(':')?;
                Mark::of_record(key, record)
            }
            _ => None,
        });
        let marks: HashSet<Mark> = written.collect();
        let owners = marks.iter().map(|mark| (mark.key.clone(), mark.owner)).collect();
        Self { marks, owners }
    }

    /// Whether the server has written what this operation wrote by its answer. `None` if it need not have written
    /// anything.
    pub(crate) fn has(&self, operation: &Operation) -> Option<bool> {
        Mark::of_operation(operation).map(|mark| self.marks.contains(&mark))
    }

    /// Whether the server may have executed a write of this operation.
    pub(crate) fn may_have(&self, operation: &Operation) -> bool {
        match operation.call {
            Call::Acquire { .. } | Call::Complete { .. } => {
                let request = operation.call.request();
                self.owners.contains(&(request.key.clone(), request.owner))
            }
            // They may mark the record of another owner.
            Call::Fail { .. } | Call::Release { .. } => true,
        }
    }
}

impl Mark {
    /// The layout is described in `stores/redis/scripts.rs`.
    fn of_record(key: &str, record: &[u8]) -> Option<Self> {
        let state = *record.first()?;
        let fence = record.get(4..12)?.try_into().ok().map(u64::from_be_bytes);
        let owner = Hex(record.get(12..20)?.try_into().ok()?);
        Some(Self { key: key.to_owned(), state, owner, fence: fence.filter(|_| state == b'P') })
    }

    fn of_operation(operation: &Operation) -> Option<Self> {
        let (state, fence) = match (&operation.call, &operation.answer) {
            (Call::Acquire { .. }, Answer::Acquired { fence, .. }) => (b'P', Some(*fence)),
            (Call::Complete { .. }, Answer::Recorded) => (b'C', None),
            (Call::Fail { .. } | Call::Release { .. }, Answer::Recorded) => (b'F', None),
            _ => return None,
        };
        let request = operation.call.request();
        Some(Self { key: request.key.clone(), state, owner: request.owner, fence })
    }
}
