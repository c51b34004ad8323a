-- acquire: try to acquire the idempotency record of each key, for one attempt per key.
--
-- KEYS[1..n]    the records, handled independently of each other
-- ARGV[1]       retention, ms: lifetime of a record, from its claim
-- ARGV[2]       maximum number of attempts; once they are used up the reply is FAILED
-- ARGV[3]       lease, ms: how long the caller may hold a record
-- ARGV[4]       the longest lease that any caller requests, ms
-- ARGV[5]       how long FAILED applies to the message that failed, ms, from the acquire of its last attempt
-- ARGV[5 + i]   the attempt on KEYS[i]: owner c8, fingerprint c16 (zeros: not compared), message c8
--
-- Output: one string for each key
--   ACQUIRED head         the caller owns the record, which begins with this head, and runs the work
--   ACQUIRED_STALE head   likewise, but an earlier attempt may have taken effect
--   DUPLICATE record      completed before; the whole record
--   CONFLICT ms           another owner holds the lease; ms until it ends; the payload is not compared
--   MISMATCH              another payload was completed under the key, or may have taken effect
--   FAILED                permanent, or attempts used up, until ARGV[5] has passed or the key is delivered with
--                         another messageId
--   NOT_A_RECORD          the value under the key is not a record and is not changed
--   NOT_LOCAL             the key is on another node of the cluster; nothing is done
--
-- Layout of a record: the head, which is state c1 (P | C | F), format B, marks B, attempts B, fence I8; then
-- owner c8 and fingerprint c16; then in C the result, and in P and F message c8 and end of the lease I8 (ms by
-- Redis's clock; 0 in F). State: P processing, C completed, F failed. Marks: 1 uncertain (in P: this attempt is a
-- recovery), 2 permanent, 4 result not kept, 12 result kept as an object, whose location is stored instead.

local retention, max_attempts, lease, longest = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
-- A record must not expire before its lease, or a second owner could acquire it.
local expiry = string.format('%d', now_us / 1000 + math.max(retention, lease))
local lease_end, no_fingerprint = struct.pack('>I8', now_us / 1000 + lease), ('\0'):rep(16)
local function is_record(r) return r:find('^C\1') and #r >= 36 or r:find('^[PF]\1') and #r == 52 end

local function head(recovery, attempt, fence) return struct.pack('>c1BBBI8', 'P', 1, recovery, attempt, fence) end
local function acquired(r) return (r:byte(3) == 1 and 'ACQUIRED_STALE ' or 'ACQUIRED ') .. r:sub(1, 12) end
local function rejected(r)
  if r.err:find('^WRONGTYPE') then return 'NOT_A_RECORD' end
  -- Before Redis 7, an error is raised as its text.
  return r.err:find('non local key') and 'NOT_LOCAL' or error(redis.REDIS_VERSION_NUM and r or r.err)
end
local first_head, first_acquired = head(0, 1, now_us), acquired(head(0, 1, now_us))

local function acquire(key, asked, seen)
  -- Completed records do not change. Others may have changed in this run, as a key can occur twice in it.
  if seen and seen:sub(1, 2) == 'C\1' and seen:sub(21, 36) == asked:sub(9, 24) then return 'DUPLICATE ' .. seen end
  local set = redis.pcall('SET', key, first_head .. asked .. lease_end, 'NX', 'PXAT', expiry)
  local record = set or redis.pcall('GET', key)
  if type(record) == 'table' then return record.ok and first_acquired or rejected(record) end
  if not is_record(record) then return 'NOT_A_RECORD' end
  local state, marks, attempts, print = record:sub(1, 1), record:byte(3), record:byte(4), record:sub(21, 36)
  local owner, fingerprint, uncertain = asked:sub(1, 8), asked:sub(9, 24), marks % 2
  local same_payload = print == fingerprint or print == no_fingerprint or fingerprint == no_fingerprint
  if state == 'C' then return same_payload and 'DUPLICATE ' .. record or 'MISMATCH' end
  local fence, holder, _, previous, ends = struct.unpack('>I8c8c16c8I8', record, 5)
  if state == 'P' then
    -- A retry by the same owner. It returns the first reply again.
    if holder == owner then return acquired(record) end
    -- A lease above the longest one was acquired while Redis's clock was ahead. It is shortened.
    local remains = math.min(ends - now_us / 1000, longest)
    local shortened = record:sub(1, 44) .. struct.pack('>I8', now_us / 1000 + longest)
    if remains == longest then redis.call('SET', key, shortened, 'KEEPTTL') end
    if remains > 0 then return string.format('CONFLICT %d', math.ceil(remains)) end
    uncertain = 1
  end
  if not same_payload and uncertain == 1 then return 'MISMATCH' end
  -- An owner that has settled cannot acquire again, even if its request arrives late.
  -- The fence is the time of the last acquire, in us.
  local applies = previous == asked:sub(25) and now_us < fence + ARGV[5] * 1000
  if holder == owner or (marks >= 2 or attempts >= max_attempts) and applies then return 'FAILED' end
  -- An attempt without a fingerprint keeps the stored one.
  if fingerprint == no_fingerprint then asked = owner .. print .. asked:sub(25) end
  local claim = head(uncertain, attempts < max_attempts and attempts + 1 or 1, math.max(fence + 1, now_us))
  redis.call('SET', key, claim .. asked .. lease_end, 'PXAT', expiry)
  return acquired(claim)
end

-- A record that MGET shows as completed needs no SET. MGET is used only for declared keys, which are in the global
-- KEYS. Keys from ARGV may be of several slots. MGET then fails, and a node with Valkey 9.0 or 9.1 refuses every script
-- after that until it is restarted.
local answers, seen = {}, KEYS == _G.KEYS and redis.pcall('MGET', unpack(KEYS)) or {}
for i, key in ipairs(KEYS) do answers[i] = acquire(key, ARGV[5 + i], seen[i]) end
return answers
