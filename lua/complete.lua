#!lua flags=allow-oom
-- complete: record that the work of each claim is done, with its result.
--
-- KEYS[1..n]    the records, each judged alone
-- ARGV[1]       retention, ms: life of a record from its claim, or from here where it was lost
-- ARGV[1 + i]   the completed record of the claim on KEYS[i], as it is to be; its layout stands in acquire.lua
--
-- Output: one string for each key
--   COMPLETED          recorded, now or by an earlier call of the same owner
--   LOST PROCESSING    another owner is at work
--   LOST COMPLETED     another owner has completed
--   LOST FAILED        another owner has failed with another payload
--   NOT_A_RECORD            the value under the key is not a record; it is left alone
--
-- A completed record is smaller than the claim but for its result, so it is written also on a server that is
-- out of memory (allow-oom: Redis 7.0 or newer, and Valkey).

local retention = ARGV[1]
local no_fingerprint = ('\0'):rep(16)
local lost = { P = 'LOST PROCESSING', C = 'LOST COMPLETED', F = 'LOST FAILED' }

local function is_record(r) return r:find('^[PF]\1') and #r == 52 or r:find('^C\1') and #r >= 36 end

-- Of a value that is not the claim as it was taken: the answer, and the value as it has to be.
local function otherwise(record, completed)
  if not is_record(record) then return 'NOT_A_RECORD', record end
  local state, owns = record:sub(1, 1), record:sub(13, 20) == completed:sub(13, 20)
  local print, fingerprint = record:sub(21, 36), completed:sub(21, 36)
  local same_payload = print == fingerprint or print == no_fingerprint or fingerprint == no_fingerprint
  if state == 'C' and owns then return 'COMPLETED', record end
  -- What is done is done: a failure of the same payload gives way to it.
  local gives_way = state == 'P' and owns or state == 'F' and same_payload
  if not gives_way then return lost[state], record end
  -- A fence never falls, and a claim without a fingerprint does not erase the one that is stored.
  local fence = math.max(struct.unpack('>I8', record, 5), (struct.unpack('>I8', completed, 5)))
  if fingerprint == no_fingerprint then fingerprint = print end
  local head = completed:sub(1, 4) .. struct.pack('>I8', fence)
  return 'COMPLETED', head .. completed:sub(13, 20) .. fingerprint .. completed:sub(37)
end

local function complete(key, completed)
  -- One command writes and reads, as nearly every claim is as it was taken. Where it is not, the value is put
  -- right within the same run of the script, so no other client sees it.
  local record = redis.pcall('SET', key, completed, 'GET', 'KEEPTTL')
  if not record then
    -- It was evicted or lost in a failover, and no other owner holds it.
    redis.call('SET', key, completed, 'PX', retention)
    return 'COMPLETED'
  end
  -- A refused command has written nothing.
  if type(record) == 'table' then return record.err:find('^WRONGTYPE') and 'NOT_A_RECORD' or error(record) end
  if record:sub(1, 2) == 'P\1' and record:sub(5, 36) == completed:sub(5, 36) then return 'COMPLETED' end
  local answer, value = otherwise(record, completed)
  redis.call('SET', key, value, 'KEEPTTL')
  return answer
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = complete(key, ARGV[1 + i]) end
return answers
