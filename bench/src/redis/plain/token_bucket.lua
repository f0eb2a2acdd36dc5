-- One token bucket. The value is a hash: the number of tokens, and the instant in microseconds at which it was that.
-- ARGV: microseconds per token, capacity. Reply: admitted (1 or 0), remaining, wait in milliseconds.
local interval, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(bucket[1]), tonumber(bucket[2])
if tokens then
  now = math.max(now, at)
  tokens = math.min(tokens + (now - at) / interval, capacity)
else
  tokens = capacity
end
if tokens < 1 then
  return { 0, 0, math.ceil((1 - tokens) * interval / 1000) }
end
tokens = tokens - 1
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil((capacity - tokens) * interval / 1000))
return { 1, math.floor(tokens), 0 }
