//! What is removed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A condition, or another part of the code, that can be removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Condition {
    /// Its number in one copy of the project, from 1.
    pub number: u32,
    /// Path of its file in the project.
    pub file: String,
    pub line: usize,
    /// The function that it is in, with its type.
    pub function: String,
    pub removal: Removal,
    /// The code that is removed or replaced.
    pub code: String,
}

/// How it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Removal {
    /// The condition always holds.
    True,
    /// The condition never holds.
    False,
    /// An arm of a match does what another arm does.
    OtherArm,
    /// An arm of a match is left out, and the last arm applies.
    NoArm,
    /// A statement is left out.
    Statement,
    /// A method that returns another value of the same type is not called, such as `min`.
    Call,
    /// A function returns at once.
    Body,
    /// A mutant of cargo-mutants that deletes an arm of a match.
    DeletedArm,
    /// Another mutant of cargo-mutants.
    Mutant,
}

impl Removal {
    /// Whether the code without it may have another type, and then does not compile.
    pub(crate) fn may_change_type(self) -> bool {
        matches!(self, Self::OtherArm | Self::NoArm | Self::Call)
    }
}

impl Condition {
    /// What identifies it in another copy, unless its function has the same code twice.
    pub(crate) fn name(&self) -> String {
        let Self { file, function, removal, code, .. } = self;
        format!("{file} {function} {removal:?} {code}")
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, file, line, removal, code, .. } = self;
        write!(f, "{number} {file}:{line} {removal:?}: {}", code.chars().take(110).collect::<String>())
    }
}
