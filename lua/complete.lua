-- complete: record that the work of each claim is done, with its result.
--
-- KEYS[1..n]    the records, each judged alone
-- ARGV[1]       retention, ms: life of a record from its last change
-- ARGV[1 + i]   the claim on KEYS[i], packed big-endian:
--               owner c8, fence I8, fingerprint c16, attempts B, marks B (4: result not kept), then the result
--
-- Output: one string for each key
--   COMPLETED          recorded, now or by an earlier call of the same owner
--   LOST PROCESSING    another owner is at work
--   LOST COMPLETED     another owner has completed
--   LOST FAILED        the attempt was settled as failed, by this owner or another
--   FOREIGN            the value under the key is not a record; it is left alone
--
-- The layout of a record stands in acquire.lua.

local retention = ARGV[1]
local lost = { P = 'LOST PROCESSING', C = 'LOST COMPLETED', F = 'LOST FAILED' }
local function ours(r) return r:find('^C\1') and #r >= 36 or r:find('^[PF]\1') and #r == 52 end

local function complete(key, packed)
  local owner, fence, fingerprint, attempts, marks, result_at = struct.unpack('>c8I8c16BB', packed)
  local record = redis.pcall('GET', key)
  if record then
    if type(record) == 'table' or not ours(record) then return 'FOREIGN' end
    local state, _, _, _, stored, holder = struct.unpack('>c1BBBI8c8', record)
    if state == 'C' and holder == owner then return 'COMPLETED' end
    if state ~= 'P' or holder ~= owner then return lost[state] end
    -- Higher where a late acquire of the same owner met a lost record: a fence never falls.
    fence = math.max(fence, stored)
  end
  -- No record: it was evicted or lost in a failover, and nobody else holds it. This heals it.
  local header = struct.pack('>c1BBBI8c8c16', 'C', 1, marks, attempts, fence, owner, fingerprint)
  redis.call('SET', key, header .. packed:sub(result_at), 'PX', retention)
  return 'COMPLETED'
end

local answers = {}
for i, key in ipairs(KEYS) do answers[i] = complete(key, ARGV[1 + i]) end
return answers
