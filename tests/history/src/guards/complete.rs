//! The guards of `lua/complete.lua`.

use super::{COMPLETE, Guard};

pub(super) const GUARDS: &[Guard] = &[
    (
        "complete: a value that is not a record stays",
        COMPLETE,
        "if not is_record(record) then return 'NOT_A_RECORD', record end",
        "",
    ),
    (
        "complete: a value of another length is not a record",
        COMPLETE,
        "r:find('^[PF]\\1') and #r == 52",
        "r:find('^[PF]\\1')",
    ),
    ("complete: a completed record has its whole head", COMPLETE, "r:find('^C\\1') and #r >= 36", "r:find('^C\\1')"),
    ("complete: a later format is not a record", COMPLETE, "r:find('^[PF]\\1')", "r:find('^[PF]')"),
    ("complete: the same of a completed record", COMPLETE, "r:find('^C\\1')", "r:find('^C')"),
    (
        "complete: a value of another type is not a record",
        COMPLETE,
        "if r.err:find('^WRONGTYPE') then return 'NOT_A_RECORD' end",
        "",
    ),
    ("complete: a value of another length is not the claim", COMPLETE, "= #record == 52 and record", "= record"),
    (
        "complete: a later format is not the claim",
        COMPLETE,
        "record:sub(1, 2) == 'P\\1' and",
        "record:sub(1, 1) == 'P' and",
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
];
