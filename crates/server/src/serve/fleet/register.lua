-- The register of the servers that share a store: the hash key of the fleet, and a line for each server that runs.
--
-- KEYS[1]: the key of the register.
-- ARGV[1]: `read`, `announce` or `leave`.
-- ARGV[2]: the TTL of the register in milliseconds.
-- ARGV[3]: after this many microseconds without an announcement, a line is dropped.
-- ARGV[4]: the line of the same server is written again if it is older than this many microseconds, or differs.
-- ARGV[5]: the id of the server, in hexadecimal.
-- ARGV[6]: when it joined, in microseconds since 1970; 0 for now.
-- ARGV[7]: the fingerprint of its rules. ARGV[8]: those of its hash keys, separated by commas.
-- ARGV[9]: the hash key of the fleet to store; empty to keep the stored one.
--
-- The register is text. Its first line is the hash key of the fleet. Each further line is a server:
-- `id announced-at joined-at rules hash-keys`, with both times in microseconds since 1970.
--
-- Reply: the time of the store in microseconds, then the register after the call; nil if it does not exist.
--
-- Example: ARGV = {'announce', '2678400000', '30000000', '10000000', 'a1', '0', '80bc55', 'f00d', 'f00d'} on an empty store
-- replies '1700000000000000\nf00d\na1 1700000000000000 1700000000000000 80bc55 f00d'.

local SERVERS_MAX = 512

local mode, ttl_ms, live_us, fresh_us = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local own_id, joined, rules, hash_keys, wanted = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_text = string.format('%.0f', now)

local found = redis.call('GET', KEYS[1])
local hash_key, servers, own_line, own_age = '', {}, nil, nil
if found then
  local is_first = true
  for line in (found .. '\n'):gmatch('([^\n]*)\n') do
    local id, announced = line:match('^(%x+) (%d+) ')
    if is_first then
      hash_key = line
    elseif id and math.abs(now - tonumber(announced)) <= live_us then
      if id == own_id then
        own_line, own_age = line, now - tonumber(announced)
      else
        servers[#servers + 1] = line
      end
    end
    is_first = false
  end
end

local is_changed = false
if mode == 'announce' then
  local text = (joined == '0' and now_text or joined) .. ' ' .. rules .. ' ' .. hash_keys
  local is_same = own_line and own_line:match('^%x+ %d+ (.*)$') == text
  if not is_same or own_age >= fresh_us or own_age < 0 then
    own_line, is_changed = own_id .. ' ' .. now_text .. ' ' .. text, true
  end
  if wanted ~= '' and wanted ~= hash_key then
    hash_key, is_changed = wanted, true
  end
elseif mode == 'leave' and own_line then
  own_line, is_changed = nil, true
end
if own_line and #servers < SERVERS_MAX then
  servers[#servers + 1] = own_line
end
if is_changed then
  table.insert(servers, 1, hash_key)
  local text = table.concat(servers, '\n')
  redis.call('SET', KEYS[1], text, 'PX', ttl_ms)
  return now_text .. '\n' .. text
end
if not found then
  return false
end
table.insert(servers, 1, hash_key)
return now_text .. '\n' .. table.concat(servers, '\n')
