//! The names of records, and calls at the same time.

use super::super::faulty::Fault::{Name, Race};
use super::{Op, Violation, acquire, always};

pub(super) const VIOLATIONS: &[Violation] = &[
    acquire("keys are compared without case", always, Name(str::to_lowercase)),
    acquire("keys are trimmed", always, Name(|key| key.trim().to_owned())),
    acquire("keys are cut off", always, Name(|key| key.chars().take(255).collect())),
    acquire("keys end at a NUL", always, Name(|key| key.split('\0').next().unwrap().to_owned())),
    acquire("keys are normalized", always, Name(|key| key.replace("u\u{308}", "ü"))),
    acquire("keys share a hash tag", always, Name(|key| key.split(['{', '}']).nth(1).unwrap_or(key).to_owned())),
    acquire("a key that is restored from its stored form is another one", always, Name(str::to_owned)),
    acquire("all keys are one", always, Name(|_| String::new())),
    acquire("other calls are executed within an acquire", always, Race),
    Violation { what: "other calls are executed within a completion", op: Op::Complete, when: always, fault: Race },
    Violation { what: "other calls are executed within a failure", op: Op::Fail, when: always, fault: Race },
    Violation { what: "other calls are executed within a release", op: Op::Release, when: always, fault: Race },
];
