#!lua flags=allow-oom
-- release: give back the record of each key, as if this attempt had not been made.
--
-- KEYS[1..n]    the records, each judged alone
-- ARGV[1]       life of a record that is written where there was none, ms
-- ARGV[1 + i]   the attempt on KEYS[i], as it was acquired: owner c8, fingerprint c16, message c8
--
-- Output: one string for each key
--   RELEASED           given back, now or by an earlier call of the same owner; the attempt is not counted
--   LOST PROCESSING    another owner is at work
--   LOST COMPLETED     the work is completed
--   LOST FAILED        another owner has failed
--   FOREIGN            the value under the key is not a record; it is left alone
--
-- The caller need not know whether its acquire was executed: the record tells. Where an earlier attempt may
-- have taken effect, the record still says so afterwards. It is no larger than the claim, so it is written also
-- on a server that is out of memory (allow-oom). The layout of a record stands in acquire.lua.

local life = ARGV[1]
local lost = { P = 'LOST PROCESSING', C = 'LOST COMPLETED', F = 'LOST FAILED' }
local no_lease = ('\0'):rep(8)

local function is_record(r) return r:find('^[PF]\1') and #r == 52 or r:find('^C\1') and #r >= 36 end

local function release(key, attempt)
  local record = redis.pcall('GET', key)
  if not record then
    -- The acquire was not executed, and may still be on its way. It must not take the record for an owner that
    -- has given up, so this record names that owner as one that has settled.
    redis.call('SET', key, struct.pack('>c1BBBI8', 'F', 1, 0, 0, 0) .. attempt .. no_lease, 'PX', life)
    return 'RELEASED'
  end
  if type(record) == 'table' then return record.err:find('^WRONGTYPE') and 'FOREIGN' or error(record) end
  if not is_record(record) then return 'FOREIGN' end
  local state, owns = record:sub(1, 1), record:sub(13, 20) == attempt:sub(1, 8)
  if state == 'F' and owns then return 'RELEASED' end
  if state ~= 'P' or not owns then return lost[state] end
  local marks, attempts = record:byte(3), record:byte(4)
  local head = struct.pack('>c1BBB', 'F', 1, marks, math.max(attempts - 1, 0))
  redis.call('SET', key, head .. record:sub(5, 44) .. no_lease, 'KEEPTTL')
  return 'RELEASED'
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = release(key, ARGV[1 + i]) end
return answers
