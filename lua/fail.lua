#!lua flags=allow-oom,allow-cross-slot-keys
-- fail: record that the attempt of each claim failed, and how.
--
-- KEYS[1..n]    the records, handled independently of each other
-- ARGV[1]       retention, ms: lifetime of a record that was lost and is written again
-- ARGV[1 + i]   the failed record to store for the claim on KEYS[i]; acquire.lua documents its layout
--
-- Output: one string for each key
--   FAILED             recorded, now or by an earlier call of the same owner
--   LOST PROCESSING    another owner is processing
--   LOST COMPLETED     the work is completed, by this owner or another
--   LOST FAILED        another owner has failed
--   NOT_A_RECORD       the value under the key is not a record and is not changed
--   NOT_LOCAL          the key is on another node of the cluster; nothing is done
--
-- An uncertain failure that arrives after another owner's failure of the same payload marks that record as
-- uncertain, so that the next attempt is a recovery. A failed record is no larger than the claim, so it is also
-- written when the server is out of memory (allow-oom: Redis 7.0 or newer, and Valkey).

local retention = ARGV[1]
local no_fingerprint = ('\0'):rep(16)
local lost = { P = 'LOST PROCESSING', F = 'LOST FAILED' }

local function rejected(r)
  if r.err:find('^WRONGTYPE') then return 'NOT_A_RECORD' end
  -- Before Redis 7, an error is raised as its text.
  return r.err:find('non local key') and 'NOT_LOCAL' or error(redis.REDIS_VERSION_NUM and r or r.err)
end

local function is_record(r) return r:find('^[PF]\1') and #r == 52 or r:find('^C\1') and #r >= 36 end

local function is_uncertain(r) return r:byte(3) % 2 == 1 end

-- Returns the reply and the value to store if the record is not the unchanged claim.
local function otherwise(record, failed)
  if not is_record(record) then return 'NOT_A_RECORD', record end
  local state, owns = record:sub(1, 1), record:sub(13, 20) == failed:sub(13, 20)
  local print, fingerprint = record:sub(21, 36), failed:sub(21, 36)
  local same_payload = print == fingerprint or print == no_fingerprint or fingerprint == no_fingerprint
  if state == 'C' then return 'LOST COMPLETED', record end
  if state == 'F' and owns then return 'FAILED', record end
  if state == 'F' and same_payload and is_uncertain(failed) and not is_uncertain(record) then
    record = record:sub(1, 2) .. string.char(record:byte(3) + 1) .. record:sub(4)
  end
  if not owns then return lost[state], record end
  -- A fence never decreases, and a claim without a fingerprint keeps the stored one.
  local fence = math.max(struct.unpack('>I8', record, 5), (struct.unpack('>I8', failed, 5)))
  if fingerprint == no_fingerprint then fingerprint = print end
  return 'FAILED', failed:sub(1, 4) .. struct.pack('>I8', fence) .. failed:sub(13, 20) .. fingerprint .. failed:sub(37)
end

local function fail(key, failed)
  -- SET ... GET writes optimistically, because nearly every claim is unchanged. If the claim changed, the value is
  -- corrected in the same script execution, which is atomic.
  local record = redis.pcall('SET', key, failed, 'GET', 'KEEPTTL')
  if not record then
    -- The record was evicted or lost in a failover, and no other owner holds it.
    redis.call('SET', key, failed, 'PX', retention)
    return 'FAILED'
  end
  -- A command that failed has written nothing.
  if type(record) == 'table' then return rejected(record) end
  local is_claim = #record == 52 and record:sub(1, 2) == 'P\1' and record:sub(5, 36) == failed:sub(5, 36)
  if is_claim then return 'FAILED' end
  local answer, value = otherwise(record, failed)
  redis.call('SET', key, value, 'KEEPTTL')
  return answer
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = fail(key, ARGV[1 + i]) end
return answers
