-- acquire: try to own the idempotency record of each key, for one attempt each.
--
-- KEYS[1..n]    the records, each judged alone
-- ARGV[1]       retention, ms: life of a record from its last change
-- ARGV[2]       attempts that may be made before the answer is FAILED
-- ARGV[2 + i]   the attempt on KEYS[i], packed big-endian:
--               owner c8, fingerprint c16 (zeros: not compared), message c8, lease I8 (ms)
--
-- Output: one string for each key
--   ACQUIRED fence attempt         the caller owns the record and runs the work
--   ACQUIRED_STALE fence attempt   likewise, but an earlier attempt may have taken effect
--   DUPLICATE record               done before; the record as it is
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
local now_ms = now_us / 1000
local expiry = string.format('%d', now_ms + retention)
local no_fingerprint = string.rep('\0', 16)
local function is_record(r) return r:find('^C\1') and #r >= 36 or r:find('^[PF]\1') and #r == 52 end

local function claim(recovery, attempt, fence)
  return struct.pack('>c1BBBI8', 'P', 1, recovery, attempt, fence),
    string.format(recovery == 1 and 'ACQUIRED_STALE %.0f %d' or 'ACQUIRED %.0f %d', fence, attempt)
end
local first_claim, first_acquired = claim(0, 1, now_us)

local function acquire(key, asked)
  local body = asked:sub(1, 32) .. struct.pack('>I8', now_ms + struct.unpack('>I8', asked, 33))
  -- What a delivery meets first nearly always: no record. One command then does it all.
  local record = redis.pcall('SET', key, first_claim .. body, 'NX', 'GET', 'PXAT', expiry)
  if not record then return first_acquired end
  if type(record) == 'table' then return record.err:find('^WRONGTYPE') and 'FOREIGN' or error(record) end
  if not is_record(record) then return 'FOREIGN' end
  local state, _, marks, attempts, fence, holder, print = struct.unpack('>c1BBBI8c8c16', record)
  local owner, fingerprint, message = struct.unpack('>c8c16c8', asked)
  local uncertain, permanent = marks % 2, marks % 4 >= 2
  local same_payload = print == fingerprint or print == no_fingerprint or fingerprint == no_fingerprint
  if not same_payload and not (state == 'F' and uncertain == 0) then return 'MISMATCH' end
  if state == 'C' then return 'DUPLICATE ' .. record end
  local previous, ends = struct.unpack('>c8I8', record, 37)
  if state == 'P' then
    -- The same owner asks again: its first reply was lost. It hears what it would have heard.
    if holder == owner then return (select(2, claim(uncertain, attempts, fence))) end
    if ends > now_ms then return string.format('CONFLICT %d', math.ceil(ends - now_ms)) end
    uncertain = 1
  -- An owner that has settled is done for good, however late its acquire arrives.
  elseif holder == owner then return 'FAILED' end
  if (permanent or attempts >= max_attempts) and previous == message then return 'FAILED' end
  attempts = attempts < max_attempts and attempts + 1 or 1
  local head, acquired = claim(uncertain, attempts, math.max(fence + 1, now_us))
  redis.call('SET', key, head .. body, 'PXAT', expiry)
  return acquired
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = acquire(key, ARGV[2 + i]) end
return answers
