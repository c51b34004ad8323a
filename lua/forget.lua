-- forget: remove the record of each key, if it is still the one that an operator has seen.
--
-- KEYS[1..n]    the records, each judged alone
-- ARGV[1]       1: a record may go even while its owner is at work; 0: not
-- ARGV[1 + i]   the fence that was seen on KEYS[i], as it stands in the record (I8, big-endian)
--
-- Output: one string for each key
--   FORGOTTEN      removed
--   ABSENT         there is no record, or no longer
--   CHANGED head   the record has another fence; of it this is the start
--   HELD ms        an owner is at work, and holds the lease for so much longer
--   FOREIGN        the value under the key is not a record; it is left alone
--
-- It is the only script to remove anything, and does so only under the very fence: a fence grows with each
-- claim, so it names one attempt. The layout of a record stands in acquire.lua.

local even_in_work, time = ARGV[1] == '1', redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

local function is_record(r) return r:find('^[PF]\1') and #r == 52 or r:find('^C\1') and #r >= 36 end

local function forget(key, fence)
  local record = redis.pcall('GET', key)
  if not record then return 'ABSENT' end
  if type(record) == 'table' then return record.err:find('^WRONGTYPE') and 'FOREIGN' or error(record) end
  if not is_record(record) then return 'FOREIGN' end
  if record:sub(5, 12) ~= fence then return 'CHANGED ' .. record:sub(1, 12) end
  if record:sub(1, 1) == 'P' and not even_in_work then
    local remains = struct.unpack('>I8', record, 45) - now_us / 1000
    if remains > 0 then return string.format('HELD %d', math.ceil(remains)) end
  end
  redis.call('DEL', key)
  return 'FORGOTTEN'
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = forget(key, ARGV[1 + i]) end
return answers
