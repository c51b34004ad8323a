-- acquire: try to own the idempotency record of each key, for one attempt each.
--
-- KEYS[1..n]    the records, each judged alone
-- ARGV[1]       retention, ms: life of a record from its last change
-- ARGV[2]       attempts that may be made before the answer is FAILED
-- ARGV[2 + i]   the attempt on KEYS[i], packed big-endian:
--               owner c8, message c8, lease I8 (ms), fingerprint c16 (zeros: not compared)
--
-- Output: one string for each key
--   ACQUIRED fence attempt         the caller owns the record and runs the work
--   ACQUIRED_STALE fence attempt   likewise, but an earlier attempt may have taken effect
--   DUPLICATE fence attempt +result | DUPLICATE fence attempt -    done before; "-": result not kept
--   CONFLICT ms                    somebody else holds the lease for so much longer
--   MISMATCH                       the key stands for another payload
--   FAILED                         permanent, or attempts used up, until another message brings the key
--   FOREIGN                        the value under the key is not a record; it is left alone
--
-- A record: state c1 (P | C | F), format B, marks B, attempts B, fence I8, owner c8, fingerprint c16,
-- then C: the result; P and F: message c8, end of the lease I8 (ms, Redis's clock; 0 in F).
-- Marks: 1 uncertain (in P: this run is a recovery), 2 permanent, 4 result not kept.

local retention, max_attempts = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local no_fingerprint = string.rep('\0', 16)
local function ours(r) return r:find('^C\1') and #r >= 36 or r:find('^[PF]\1') and #r == 52 end

local function acquired(recovery, fence, attempt)
  return string.format(recovery == 1 and 'ACQUIRED_STALE %.0f %d' or 'ACQUIRED %.0f %d', fence, attempt)
end

local function acquire(key, packed)
  local owner, message, lease, fingerprint = struct.unpack('>c8c8I8c16', packed)
  local record = redis.pcall('GET', key)
  local attempts, fence, recovery = 0, 0, 0
  if record then
    if type(record) == 'table' or not ours(record) then return 'FOREIGN' end
    local state, _, marks, tried, stored, holder, print = struct.unpack('>c1BBBI8c8c16', record)
    local uncertain, permanent = marks % 2, marks % 4 >= 2
    local same_payload = print == fingerprint or print == no_fingerprint or fingerprint == no_fingerprint
    if not same_payload and not (state == 'F' and uncertain == 0) then return 'MISMATCH' end
    if state == 'C' then
      return string.format('DUPLICATE %.0f %d ', stored, tried) .. (marks >= 4 and '-' or '+' .. record:sub(37))
    end
    local previous, lease_end = struct.unpack('>c8I8', record, 37)
    if state == 'P' then
      -- The same owner asks again: its first reply was lost. It hears what it would have heard.
      if holder == owner then return acquired(uncertain, stored, tried) end
      local remains = lease_end - now_us / 1000
      if remains > 0 then return string.format('CONFLICT %d', math.ceil(remains)) end
    -- An owner that has settled is done for good, however late its acquire arrives.
    elseif holder == owner then return 'FAILED' end
    if (permanent or tried >= max_attempts) and previous == message then return 'FAILED' end
    attempts = tried < max_attempts and tried or 0
    fence, recovery = stored, state == 'P' and 1 or uncertain
  end
  attempts, fence = attempts + 1, math.max(fence + 1, now_us)
  local claim = { 'P', 1, recovery, attempts, fence, owner, fingerprint, message, now_us / 1000 + lease }
  redis.call('SET', key, struct.pack('>c1BBBI8c8c16c8I8', unpack(claim)), 'PX', retention)
  return acquired(recovery, fence, attempts)
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = acquire(key, ARGV[2 + i]) end
return answers
