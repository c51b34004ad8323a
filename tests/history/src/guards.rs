//! The guards of the scripts, each of which can be removed from its script to see what finds it.

#![allow(missing_docs, reason = "each name says it")]

pub const ACQUIRE: &str = include_str!("../../../lua/acquire.lua");
pub const COMPLETE: &str = include_str!("../../../lua/complete.lua");
pub const FAIL: &str = include_str!("../../../lua/fail.lua");
pub const RELEASE: &str = include_str!("../../../lua/release.lua");

/// A guard: what it ensures, its script, its code, and the code without it.
pub type Guard = (&'static str, &'static str, &'static str, &'static str);

pub const GUARDS: &[Guard] = &[
    ("acquire: an existing record is not replaced", ACQUIRE, "'NX', 'PXAT'", "'PXAT'"),
    ("acquire: a record lives as long as its lease", ACQUIRE, "math.max(retention, lease)", "retention"),
    (
        "acquire: a completed record stays",
        ACQUIRE,
        "if state == 'C' then return",
        "if state == 'C' then redis.call('DEL', key) return acquire(key, asked) end\n  if false then return",
    ),
    (
        "acquire: another payload than a completed one is a mismatch",
        ACQUIRE,
        "return same_payload and 'DUPLICATE '",
        "return 'DUPLICATE '",
    ),
    ("acquire: the same, by the quick path", ACQUIRE, " and seen:sub(21, 36) == asked:sub(9, 24) then", " then"),
    (
        "acquire: the same owner gets the same answer",
        ACQUIRE,
        "if holder == owner then return acquired(record) end",
        "",
    ),
    ("acquire: a live lease is a conflict", ACQUIRE, "if remains > 0 then", "if false then"),
    ("acquire: a lease ends", ACQUIRE, "if remains > 0 then", "if true then"),
    ("acquire: a lease above the longest is shortened", ACQUIRE, "if remains == longest then", "if false then"),
    (
        "acquire: the answer has the shortened lease",
        ACQUIRE,
        "math.min(ends - now_us / 1000, longest)",
        "ends - now_us / 1000",
    ),
    ("acquire: a shortened lease keeps the expiry", ACQUIRE, "shortened, 'KEEPTTL')", "shortened)"),
    ("acquire: a takeover is a recovery", ACQUIRE, "    uncertain = 1", "    uncertain = 0"),
    (
        "acquire: after a failure in doubt a recovery follows",
        ACQUIRE,
        "head(uncertain, attempts",
        "head(state == 'P' and 1 or 0, attempts",
    ),
    (
        "acquire: another payload than one in doubt is a mismatch",
        ACQUIRE,
        "if not same_payload and uncertain == 1 then return 'MISMATCH' end",
        "",
    ),
    ("acquire: an owner that has settled cannot acquire again", ACQUIRE, "if holder == owner or (marks", "if (marks"),
    (
        "acquire: a permanent failure applies",
        ACQUIRE,
        "(marks >= 2 or attempts >= max_attempts)",
        "(attempts >= max_attempts)",
    ),
    ("acquire: used-up attempts apply", ACQUIRE, "(marks >= 2 or attempts >= max_attempts)", "(marks >= 2)"),
    ("acquire: a failure applies to its message only", ACQUIRE, "previous == asked:sub(25) and now_us", "now_us"),
    ("acquire: a failure applies for a time only", ACQUIRE, " and now_us < fence + ARGV[5] * 1000", ""),
    ("acquire: attempts are counted", ACQUIRE, "attempts + 1 or 1", "1 or 1"),
    ("acquire: the count restarts", ACQUIRE, "attempts < max_attempts and attempts + 1 or 1", "attempts + 1"),
    ("acquire: a fence is at least the clock", ACQUIRE, "math.max(fence + 1, now_us)", "fence + 1"),
    (
        "acquire: a fence is greater than the one before",
        ACQUIRE,
        "math.max(fence + 1, now_us)",
        "math.max(fence, now_us)",
    ),
    (
        "acquire: an attempt without a fingerprint keeps the stored one",
        ACQUIRE,
        "if fingerprint == no_fingerprint then asked = owner .. print .. asked:sub(25) end",
        "",
    ),
    (
        "acquire: a record without a fingerprint agrees with all",
        ACQUIRE,
        "print == fingerprint or print == no_fingerprint or",
        "print == fingerprint or",
    ),
    ("acquire: an attempt without a fingerprint agrees with all", ACQUIRE, " or fingerprint == no_fingerprint\n", "\n"),
    (
        "acquire: the retention is renewed",
        ACQUIRE,
        "asked .. lease_end, 'PXAT', expiry)",
        "asked .. lease_end, 'KEEPTTL')",
    ),
    (
        "complete: a lost record is written again",
        COMPLETE,
        "redis.call('SET', key, completed, 'PX', retention)",
        "redis.call('DEL', key)",
    ),
    (
        "complete: a lost record has an expiry",
        COMPLETE,
        "redis.call('SET', key, completed, 'PX', retention)",
        "redis.call('SET', key, completed)",
    ),
    ("complete: the record keeps its expiry", COMPLETE, "'GET', 'KEEPTTL')", "'GET')"),
    ("complete: a corrected record keeps its expiry", COMPLETE, "'SET', key, value, 'KEEPTTL')", "'SET', key, value)"),
    (
        "complete: a record without a fingerprint agrees with all",
        COMPLETE,
        "print == fingerprint or print == no_fingerprint or",
        "print == fingerprint or",
    ),
    ("complete: a claim without a fingerprint agrees with all", COMPLETE, " or fingerprint == no_fingerprint\n", "\n"),
    (
        "complete: a repeated call has the same answer",
        COMPLETE,
        "if state == 'C' and owns then return 'COMPLETED', record end",
        "",
    ),
    ("complete: only the owner", COMPLETE, "state == 'P' and owns", "state == 'P'"),
    ("complete: a failure of another payload stays", COMPLETE, "state == 'F' and same_payload", "state == 'F'"),
    ("complete: done work replaces a failure", COMPLETE, " or state == 'F' and same_payload", ""),
    ("complete: a completed record stays", COMPLETE, "if not gives_way then", "if not gives_way and state ~= 'C' then"),
    (
        "complete: the fence does not decrease",
        COMPLETE,
        "math.max(struct.unpack('>I8', record, 5), (struct.unpack('>I8', completed, 5)))",
        "struct.unpack('>I8', completed, 5)",
    ),
    (
        "complete: a claim without a fingerprint keeps the stored one",
        COMPLETE,
        "if fingerprint == no_fingerprint then fingerprint = print end",
        "",
    ),
    ("complete: the optimistic write is corrected", COMPLETE, "  redis.call('SET', key, value, 'KEEPTTL')\n", ""),
    (
        "complete: the quick path is for the own claim",
        COMPLETE,
        "record:sub(1, 2) == 'P\\1' and record:sub(5, 36) == completed:sub(5, 36)",
        "record:sub(1, 2) == 'P\\1'",
    ),
    (
        "complete: the quick path compares the fence",
        COMPLETE,
        "sub(5, 36) == completed:sub(5, 36)",
        "sub(13, 36) == completed:sub(13, 36)",
    ),
    (
        "fail: a lost record is written again",
        FAIL,
        "redis.call('SET', key, failed, 'PX', retention)",
        "redis.call('DEL', key)",
    ),
    (
        "fail: a lost record has an expiry",
        FAIL,
        "redis.call('SET', key, failed, 'PX', retention)",
        "redis.call('SET', key, failed)",
    ),
    ("fail: the record keeps its expiry", FAIL, "'GET', 'KEEPTTL')", "'GET')"),
    ("fail: a corrected record keeps its expiry", FAIL, "'SET', key, value, 'KEEPTTL')", "'SET', key, value)"),
    (
        "fail: a record without a fingerprint agrees with all",
        FAIL,
        "print == fingerprint or print == no_fingerprint or",
        "print == fingerprint or",
    ),
    ("fail: a claim without a fingerprint agrees with all", FAIL, " or fingerprint == no_fingerprint\n", "\n"),
    ("fail: doubt is added once", FAIL, " and not is_uncertain(record) then", " then"),
    ("fail: late doubt leaves a failure permanent", FAIL, "string.char(record:byte(3) + 1)", "string.char(1)"),
    ("fail: a completed record stays", FAIL, "if state == 'C' then return 'LOST COMPLETED', record end", ""),
    (
        "fail: a repeated call has the same answer",
        FAIL,
        "if state == 'F' and owns then return 'FAILED', record end",
        "",
    ),
    ("fail: late doubt marks the record", FAIL, "if state == 'F' and same_payload and", "if false and"),
    (
        "fail: late doubt of another payload does not",
        FAIL,
        "state == 'F' and same_payload and is",
        "state == 'F' and is",
    ),
    ("fail: late success leaves no doubt", FAIL, "is_uncertain(failed) and not", "not"),
    ("fail: only the owner", FAIL, "if not owns then return lost[state], record end", ""),
    (
        "fail: the fence does not decrease",
        FAIL,
        "math.max(struct.unpack('>I8', record, 5), (struct.unpack('>I8', failed, 5)))",
        "struct.unpack('>I8', failed, 5)",
    ),
    (
        "fail: a claim without a fingerprint keeps the stored one",
        FAIL,
        "if fingerprint == no_fingerprint then fingerprint = print end",
        "",
    ),
    ("fail: the optimistic write is corrected", FAIL, "  redis.call('SET', key, value, 'KEEPTTL')\n", ""),
    (
        "fail: the quick path is for the own claim",
        FAIL,
        "record:sub(1, 2) == 'P\\1' and record:sub(5, 36) == failed:sub(5, 36)",
        "record:sub(1, 2) == 'P\\1'",
    ),
    (
        "fail: the quick path compares the fence",
        FAIL,
        "sub(5, 36) == failed:sub(5, 36)",
        "sub(13, 36) == failed:sub(13, 36)",
    ),
    (
        "release: the doubt of a lost recovery is written again",
        RELEASE,
        "if failed:byte(3) == 1 then redis.call('SET', key, failed, 'PX', retention) end",
        "",
    ),
    ("release: a lost record has an expiry", RELEASE, "failed, 'PX', retention)", "failed)"),
    (
        "release: a repeated call has the same answer",
        RELEASE,
        "if state == 'F' and owns then return 'RELEASED' end",
        "",
    ),
    (
        "release: a released recovery marks the record",
        RELEASE,
        "if state == 'F' and same_payload and failed",
        "if false and failed",
    ),
    (
        "release: a recovery of another payload does not",
        RELEASE,
        "if state == 'F' and same_payload and failed",
        "if state == 'F' and failed",
    ),
    ("release: a first attempt leaves no doubt", RELEASE, "failed:byte(3) == 1 and record", "record"),
    ("release: doubt is added once", RELEASE, " and record:byte(3) % 2 == 0 then", " then"),
    ("release: late doubt leaves a failure permanent", RELEASE, "string.char(record:byte(3) + 1)", "string.char(1)"),
    ("release: a marked record keeps its expiry", RELEASE, "record:sub(4), 'KEEPTTL')", "record:sub(4))"),
    (
        "release: a record without a fingerprint agrees with all",
        RELEASE,
        "print == fingerprint or print == no_fingerprint or",
        "print == fingerprint or",
    ),
    ("release: a claim without a fingerprint agrees with all", RELEASE, " or fingerprint == no_fingerprint\n", "\n"),
    ("release: only the owner", RELEASE, "if state ~= 'P' or not owns then", "if state ~= 'P' then"),
    ("release: only during the attempt", RELEASE, "if state ~= 'P' or not owns then", "if not owns then"),
    ("release: earlier doubt stays", RELEASE, "'F', 1, record:byte(3), math", "'F', 1, 0, math"),
    ("release: the attempt is not counted", RELEASE, "record:byte(4) - 1", "record:byte(4)"),
    ("release: the record keeps its expiry", RELEASE, "('\\0'):rep(8), 'KEEPTTL')", "('\\0'):rep(8))"),
];

/// Matters only while Redis's clock goes back, as it does in the simulation.
pub const NEEDS_CLOCK: &str = "acquire: a fence is greater than the one before";

/// The guard whose name begins with this.
#[must_use]
pub fn named(name: &str) -> Option<&'static Guard> {
    GUARDS.iter().find(|(what, ..)| what.starts_with(name))
}

/// The text of a script without the guard, if it is a form of the guard's script.
#[must_use]
pub fn without((_, script, code, without): &Guard, text: &str) -> String {
    // The forms differ in the first line.
    let rest = script.split_once('\n').map_or(*script, |(_, rest)| rest);
    if text.contains(rest) { text.replace(code, without) } else { text.to_owned() }
}
