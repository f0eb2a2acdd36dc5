-- One limit by GCRA. The value is the instant at which the debt is drained, in microseconds.
-- ARGV: microseconds per unit, burst. Reply: admitted (1 or 0), remaining, wait in milliseconds.
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local free_at = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + interval
local room = burst * interval - (free_at - now)
if room < 0 then
  return { 0, 0, math.ceil(-room / 1000) }
end
redis.call('SET', KEYS[1], free_at, 'PX', math.ceil((free_at - now) / 1000))
return { 1, math.floor(room / interval), 0 }
