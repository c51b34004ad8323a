-- fail: record that the attempt of each claim failed, and how.
--
-- KEYS[1..n]    the records, each judged alone
-- ARGV[1]       retention, ms: life of a record from its claim, or from here where it was lost
-- ARGV[1 + i]   the failed record of the claim on KEYS[i], as it is to be; its layout stands in acquire.lua
--
-- Output: one string for each key
--   FAILED             recorded, now or by an earlier call of the same owner
--   LOST PROCESSING    another owner is at work
--   LOST COMPLETED     the work is completed, by this owner or another
--   LOST FAILED        another owner has failed
--   FOREIGN            the value under the key is not a record; it is left alone

local retention = ARGV[1]
local lost = { P = 'LOST PROCESSING', C = 'LOST COMPLETED', F = 'LOST FAILED' }

local function is_record(r) return r:find('^[PF]\1') and #r == 52 or r:find('^C\1') and #r >= 36 end

local function fail(key, failed)
  local record = redis.pcall('GET', key)
  if not record then
    -- It was evicted or lost in a failover, and nobody else holds it. This heals it.
    redis.call('SET', key, failed, 'PX', retention)
    return 'FAILED'
  end
  if type(record) == 'table' then return record.err:find('^WRONGTYPE') and 'FOREIGN' or error(record) end
  -- The claim as it was taken, or else whatever has become of it.
  if record:sub(1, 2) ~= 'P\1' or record:sub(5, 20) ~= failed:sub(5, 20) then
    if not is_record(record) then return 'FOREIGN' end
    local state, owns = record:sub(1, 1), record:sub(13, 20) == failed:sub(13, 20)
    if state == 'F' and owns then return 'FAILED' end
    if state ~= 'P' or not owns then return lost[state] end
    -- A late acquire of the same owner met a lost record, and has another fence. A fence never falls.
    local fence = math.max(struct.unpack('>I8', record, 5), (struct.unpack('>I8', failed, 5)))
    failed = failed:sub(1, 4) .. struct.pack('>I8', fence) .. failed:sub(13)
  end
  redis.call('SET', key, failed, 'KEEPTTL')
  return 'FAILED'
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = fail(key, ARGV[1 + i]) end
return answers
