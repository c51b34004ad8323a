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
--   LOST FAILED        the attempt was settled as failed, by this owner or another
--   FOREIGN            the value under the key is not a record; it is left alone

local retention = ARGV[1]
local lost = { P = 'LOST PROCESSING', C = 'LOST COMPLETED', F = 'LOST FAILED' }

local function is_record(r) return r:find('^[PF]\1') and #r == 52 or r:find('^C\1') and #r >= 36 end

-- Of a value that is not the claim as it was taken: the answer, and the value as it has to be.
local function otherwise(record, completed)
  if not is_record(record) then return 'FOREIGN', record end
  local state, owns = record:sub(1, 1), record:sub(13, 20) == completed:sub(13, 20)
  if state == 'C' and owns then return 'COMPLETED', record end
  if state ~= 'P' or not owns then return lost[state], record end
  -- A late acquire of the same owner met a lost record, and has another fence. A fence never falls.
  local fence = math.max(struct.unpack('>I8', record, 5), (struct.unpack('>I8', completed, 5)))
  return 'COMPLETED', completed:sub(1, 4) .. struct.pack('>I8', fence) .. completed:sub(13)
end

local function complete(key, completed)
  -- One command writes and reads, as nearly every claim is as it was taken. Where it is not, the value is put
  -- right before anybody else can see it, as a script runs alone.
  local record = redis.pcall('SET', key, completed, 'GET', 'KEEPTTL')
  if not record then
    -- It was evicted or lost in a failover, and nobody else holds it. This heals it.
    redis.call('SET', key, completed, 'PX', retention)
    return 'COMPLETED'
  end
  -- A refused command has written nothing.
  if type(record) == 'table' then return record.err:find('^WRONGTYPE') and 'FOREIGN' or error(record) end
  if record:sub(1, 2) == 'P\1' and record:sub(5, 20) == completed:sub(5, 20) then return 'COMPLETED' end
  local answer, value = otherwise(record, completed)
  redis.call('SET', key, value, 'KEEPTTL')
  return answer
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = complete(key, ARGV[1 + i]) end
return answers
