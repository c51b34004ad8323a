-- forget: remove the record of each key, if it is still as an operator has seen it.
--
-- KEYS[1..n]    the records, each judged alone
-- ARGV[1]       1: a record may go even while its owner is at work; 0: not
-- ARGV[1 + i]   what was seen on KEYS[i]: state c1 (P | C | F), marks B (of F; else 0), fence I8
--
-- Output: one string for each key
--   FORGOTTEN      removed
--   ABSENT         there is no record, or no longer
--   CHANGED head   the record has another state, other marks or another fence; of it this is the start
--   HELD ms        an owner is at work, and holds the lease for so much longer
--   NOT_A_RECORD        the value under the key is not a record; it is left alone
--
-- No other script removes a record. The fence alone does not say that the record is the same: it names an
-- attempt, and the record of an attempt can still be settled, completed by a late owner, or marked uncertain.
-- The marks of P and C stay the same as long as their state and fence do, so they are not compared. The layout
-- of a record stands in acquire.lua.

local even_in_work, time = ARGV[1] == '1', redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

local function is_record(r) return r:find('^[PF]\1') and #r == 52 or r:find('^C\1') and #r >= 36 end

local function seen_of(r)
  local state = r:sub(1, 1)
  return state .. (state == 'F' and r:sub(3, 3) or '\0') .. r:sub(5, 12)
end

local function forget(key, seen)
  local record = redis.pcall('GET', key)
  if not record then return 'ABSENT' end
  if type(record) == 'table' then return record.err:find('^WRONGTYPE') and 'NOT_A_RECORD' or error(record) end
  if not is_record(record) then return 'NOT_A_RECORD' end
  if seen_of(record) ~= seen then return 'CHANGED ' .. record:sub(1, 12) end
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
