//! The guards of `lua/release.lua`.

use super::{Guard, RELEASE};

pub(super) const GUARDS: &[Guard] = &[
    (
        "release: a value that is not a record stays",
        RELEASE,
        "if not is_record(record) then return 'NOT_A_RECORD' end",
        "",
    ),
    (
        "release: a value of another length is not a record",
        RELEASE,
        "r:find('^[PF]\\1') and #r == 52",
        "r:find('^[PF]\\1')",
    ),
    ("release: a completed record has its whole head", RELEASE, "r:find('^C\\1') and #r >= 36", "r:find('^C\\1')"),
    ("release: a later format is not a record", RELEASE, "r:find('^[PF]\\1')", "r:find('^[PF]')"),
    ("release: the same of a completed record", RELEASE, "r:find('^C\\1')", "r:find('^C')"),
    (
        "release: a value of another type is not a record",
        RELEASE,
        "if r.err:find('^WRONGTYPE') then return 'NOT_A_RECORD' end",
        "",
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
