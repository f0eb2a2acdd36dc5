-- Writes a note for the other servers of the fleet, and returns the previous one.
--
-- KEYS[1]: the key of the note.
-- ARGV[1]: the text of the note. ARGV[2]: its TTL in milliseconds.
-- ARGV[3] and on: texts. If there are any, the previous note is replaced only if it contains one of them.
--
-- Reply: the previous note; nil if there was none.
--
-- Example: KEYS = {'tg:1:shop:{fleet}:@rules'}, ARGV = {'80bc55 0f3a', '30000'} replaces any note for 30 seconds.

local found = redis.call('GET', KEYS[1])
local ours = not found or not ARGV[3]
for index = 3, #ARGV do
  ours = ours or found:find(ARGV[index], 1, true) ~= nil
end
if ours then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return found
