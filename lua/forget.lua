-- forget: remove the record of each key, if it is unchanged since an operator read it.
--
-- KEYS[1..n]    the records, handled independently of each other
-- ARGV[1]       1: also remove a record whose owner holds a lease; 0: do not
-- ARGV[1 + i]   the record that was read at KEYS[i]: state c1 (P | C | F), marks B (of F; else 0), fence I8
--
-- Output: one string for each key
--   FORGOTTEN      removed
--   ABSENT         there is no record, or it is already removed
--   CHANGED head   the record has another state, other marks or another fence; it begins with this head
--   HELD ms        an owner is processing and holds the lease; ms until it ends
--   NOT_A_RECORD   the value under the key is not a record and is not changed
--
-- No other script removes a record. An equal fence does not mean an equal record: the fence identifies an attempt,
-- and the record of an attempt can still be settled, completed by a late owner, or marked uncertain. The marks of P
-- and C do not change while their state and fence stay the same, so they are not compared. acquire.lua documents the
-- layout of a record.

local force, time = ARGV[1] == '1', redis.call('TIME')
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
  if record:sub(1, 1) == 'P' and not force then
    local remains = struct.unpack('>I8', record, 45) - now_us / 1000
    if remains > 0 then return string.format('HELD %d', math.ceil(remains)) end
  end
  redis.call('DEL', key)
  return 'FORGOTTEN'
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = forget(key, ARGV[1 + i]) end
return answers
