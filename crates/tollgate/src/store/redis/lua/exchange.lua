-- Leaves a note for the other servers, and tells the one that was there.
--
-- KEYS[1]: where it is left. ARGV[1]: what it says. ARGV[2]: how long it stays, in milliseconds. ARGV[3] and on: texts of
-- which one must be in the note that is there, or that is left alone; without any it is replaced whatever it says.
--
-- Reply: what was there, nil if nothing was.

local found = redis.call('GET', KEYS[1])
local ours = not found or not ARGV[3]
for index = 3, #ARGV do
  ours = ours or found:find(ARGV[index], 1, true) ~= nil
end
if ours then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return found
