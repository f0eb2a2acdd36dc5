-- One fixed window. It begins with its first request and ends when the key expires.
-- ARGV: length of the window in milliseconds, limit. Reply: admitted (1 or 0), remaining, wait in milliseconds.
local limit = tonumber(ARGV[2])
local count = redis.call('INCR', KEYS[1])
if count == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
if count > limit then
  return { 0, 0, redis.call('PTTL', KEYS[1]) }
end
return { 1, limit - count, 0 }
