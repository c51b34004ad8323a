#!lua flags=allow-oom,allow-cross-slot-keys
-- complete: record that the work of each claim is done, with its result.
--
-- KEYS[1..n]    the records, handled independently of each other
-- ARGV[1]       retention, ms: lifetime of a record that was lost and is written again
-- ARGV[1 + i]   the completed record to store for the claim on KEYS[i]; acquire.lua documents its layout
--
-- Output: one string for each key
--   COMPLETED          recorded, now or by an earlier call of the same owner
--   LOST PROCESSING    another owner is processing
--   LOST COMPLETED     another owner has completed
--   LOST FAILED        another owner has failed with another payload
--   NOT_A_RECORD       the value under the key is not a record and is not changed
--   NOT_LOCAL          the key is on another node of the cluster; nothing is done
--
-- Apart from its result, a completed record is smaller than the claim. So it is also written when the server is
-- out of memory (allow-oom: Redis 7.0 or newer, and Valkey).

local retention = ARGV[1]
local no_fingerprint = ('\0'):rep(16)
local lost = { P = 'LOST PROCESSING', C = 'LOST COMPLETED', F = 'LOST FAILED' }

local function rejected(r)
  if r.err:find('^WRONGTYPE') then return 'NOT_A_RECORD' end
  -- Before Redis 7, an error is raised as its text.
  return r.err:find('non local key') and 'NOT_LOCAL' or error(redis.REDIS_VERSION_NUM and r or r.err)
end

local function is_record(r) return r:find('^[PF]\1') and #r == 52 or r:find('^C\1') and #r >= 36 end

-- Returns the reply and the value to store if the record is not the unchanged claim.
local function otherwise(record, completed)
  if not is_record(record) then return 'NOT_A_RECORD', record end
  local state, owns = record:sub(1, 1), record:sub(13, 20) == completed:sub(13, 20)
  local print, fingerprint = record:sub(21, 36), completed:sub(21, 36)
  local same_payload = print == fingerprint or print == no_fingerprint or fingerprint == no_fingerprint
  if state == 'C' and owns then return 'COMPLETED', record end
  -- Completed work replaces a failure of the same payload.
  local gives_way = state == 'P' and owns or state == 'F' and same_payload
  if not gives_way then return lost[state], record end
  -- A fence never decreases, and a claim without a fingerprint keeps the stored one.
  local fence = math.max(struct.unpack('>I8', record, 5), (struct.unpack('>I8', completed, 5)))
  if fingerprint == no_fingerprint then fingerprint = print end
  local head = completed:sub(1, 4) .. struct.pack('>I8', fence)
  return 'COMPLETED', head .. completed:sub(13, 20) .. fingerprint .. completed:sub(37)
end

local function complete(key, completed)
  -- SET ... GET writes optimistically, because nearly every claim is unchanged. If the claim changed, the value is
  -- corrected in the same script execution, which is atomic.
  local record = redis.pcall('SET', key, completed, 'GET', 'KEEPTTL')
  if not record then
    -- The record was evicted or lost in a failover, and no other owner holds it.
    redis.call('SET', key, completed, 'PX', retention)
    return 'COMPLETED'
  end
  -- A command that failed has written nothing.
  if type(record) == 'table' then return rejected(record) end
  local is_claim = #record == 52 and record:sub(1, 2) == 'P\1' and record:sub(5, 36) == completed:sub(5, 36)
  if is_claim then return 'COMPLETED' end
  local answer, value = otherwise(record, completed)
  redis.call('SET', key, value, 'KEEPTTL')
  return answer
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = complete(key, ARGV[1 + i]) end
return answers
