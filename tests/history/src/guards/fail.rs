//! The guards of `lua/fail.lua`.

use super::{FAIL, Guard};

pub(super) const GUARDS: &[Guard] = &[
    (
        "fail: a value that is not a record stays",
        FAIL,
        "if not is_record(record) then return 'NOT_A_RECORD', record end",
        "",
    ),
    ("fail: a value of another length is not a record", FAIL, "r:find('^[PF]\\1') and #r == 52", "r:find('^[PF]\\1')"),
    ("fail: a completed record has its whole head", FAIL, "r:find('^C\\1') and #r >= 36", "r:find('^C\\1')"),
    ("fail: a later format is not a record", FAIL, "r:find('^[PF]\\1')", "r:find('^[PF]')"),
    ("fail: the same of a completed record", FAIL, "r:find('^C\\1')", "r:find('^C')"),
    (
        "fail: a value of another type is not a record",
        FAIL,
        "if r.err:find('^WRONGTYPE') then return 'NOT_A_RECORD' end",
        "",
    ),
    ("fail: a value of another length is not the claim", FAIL, "= #record == 52 and record", "= record"),
    ("fail: a later format is not the claim", FAIL, "record:sub(1, 2) == 'P\\1' and", "record:sub(1, 1) == 'P' and"),
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
];
