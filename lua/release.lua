#!lua flags=allow-oom,allow-cross-slot-keys
-- release: undo the acquire of each key, so that this attempt is not counted.
--
-- KEYS[1..n]    the records, handled independently of each other
-- ARGV[1]       retention, ms: lifetime of a record that was lost and is written again
-- ARGV[1 + i]   the failed record of the attempt on KEYS[i], to store if the record was lost; acquire.lua documents
--               its layout
--
-- Output: one string for each key
--   RELEASED           released, now or by an earlier call of the same owner, or never acquired
--   LOST PROCESSING    another owner is processing
--   LOST COMPLETED     the work is completed
--   LOST FAILED        another owner has failed
--   NOT_A_RECORD       the value under the key is not a record and is not changed
--   NOT_LOCAL          the key is on another node of the cluster; nothing is done
--
-- The record shows whether the acquire was executed, so a release does not require the reply to the acquire. If an
-- earlier attempt may have taken effect, the record keeps the mark uncertain, and so does the record of another owner
-- that has failed with the same payload since. A permanent failure and the attempts of another message, which the
-- acquire has replaced, are not restored. A released record is no larger than the claim, so it is also written when the
-- server is out of memory (allow-oom: Redis 7.0 or newer, and Valkey).

local retention = ARGV[1]
local no_fingerprint = ('\0'):rep(16)
local lost = { P = 'LOST PROCESSING', C = 'LOST COMPLETED', F = 'LOST FAILED' }

local function rejected(r)
  if r.err:find('^WRONGTYPE') then return 'NOT_A_RECORD' end
  -- Before Redis 7, an error is raised as its text.
  return r.err:find('non local key') and 'NOT_LOCAL' or error(redis.REDIS_VERSION_NUM and r or r.err)
end

local function is_record(r) return r:find('^[PF]\1') and #r == 52 or r:find('^C\1') and #r >= 36 end

local function release(key, failed)
  local record = redis.pcall('GET', key)
  if not record then
    -- The record was lost. If the claim was a recovery, this restores its mark uncertain.
    if failed:byte(3) == 1 then redis.call('SET', key, failed, 'PX', retention) end
    return 'RELEASED'
  end
  if type(record) == 'table' then return rejected(record) end
  if not is_record(record) then return 'NOT_A_RECORD' end
  local state, owns = record:sub(1, 1), record:sub(13, 20) == failed:sub(13, 20)
  local print, fingerprint = record:sub(21, 36), failed:sub(21, 36)
  local same_payload = print == fingerprint or print == no_fingerprint or fingerprint == no_fingerprint
  if state == 'F' and owns then return 'RELEASED' end
  if state == 'F' and same_payload and failed:byte(3) == 1 and record:byte(3) % 2 == 0 then
    redis.call('SET', key, record:sub(1, 2) .. string.char(record:byte(3) + 1) .. record:sub(4), 'KEEPTTL')
  end
  if state ~= 'P' or not owns then return lost[state] end
  local head = struct.pack('>c1BBB', 'F', 1, record:byte(3), math.max(record:byte(4) - 1, 0))
  redis.call('SET', key, head .. record:sub(5, 44) .. ('\0'):rep(8), 'KEEPTTL')
  return 'RELEASED'
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = release(key, ARGV[1 + i]) end
return answers
