-- Sliding log: at most `limit` units in any window, exactly. Twin of core's sliding_log.rs; prelude.lua has the
-- contract, but `state` and `change` are tables here: the log that open_log returns, and the arguments of edit_log.
--
-- State
--   BBI6  version 1, kind 3, number of entries
--   I8    running total before the oldest entry
--   I8    slot of the oldest entry
--   I8    number of slots
--   I7I7  time and running total of an entry, for each slot of the ring
--
-- Numbers, doubles: limit, window, largest number of entries
--
-- Example: charges of 1 at 2500000 and of 2 at 2600000 leave the entries (2500000, 1) and (2600000, 3).
--
-- A log may hold 100,000 entries, so it is edited in place. A check reads the head and, by binary search, the few
-- entries that it needs. An admission writes the head and one entry. A full ring is rewritten an eighth larger. That
-- copies the log, but so rarely that each admission pays for eight entries. Running totals wrap at 2^53.

local WRAP = 9007199254740992
-- Bytes of the first read: the head and 16 entries. A log that fits is written as a whole.
local FIRST_READ = 256
-- More entries than any limit allows.
local SLOTS_MAX = 1048576

-- Returns time and running total of an entry. Index 0 is the oldest entry that was stored. Reads each entry once.
local function entry(log, index)
  local time = log.times[index]
  if not time then
    local at, total = 32 + 14 * ((log.first + index) % log.slots), nil
    local bytes, from = log.bytes, at + 1
    if at + 14 > #bytes then
      bytes, from = call('GETRANGE', KEYS[log.key], at, at + 13), 1
      if #bytes < 14 then
        corrupt(LENGTH, 32 + 14 * log.slots, at + #bytes)
      end
    end
    time, total = unpack_from('<I7I7', bytes, from)
    check_range(floor(at / 8), time, 0, MAX)
    check_range(floor((at + 7) / 8), total, 0, MAX)
    log.times[index], log.totals[index] = time, total
  end
  return time, log.totals[index]
end

-- Binary search: returns the first index from `low` to `high` for which `holds(time, total)` is false.
local function partition_point(log, low, high, holds)
  while low < high do
    local middle = floor((low + high) / 2)
    if holds(entry(log, middle)) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Checks the head and returns the log. `bytes` is the first read of the string.
local function open_log(key, bytes)
  check_head(bytes, 32)
  local count, base, first, slots = unpack_from('<I6I8I8I8', bytes, 3)
  check_range(1, base, 0, MAX)
  check_range(3, slots, 0, SLOTS_MAX)
  check_range(0, count, 0, slots)
  check_range(2, first, 0, max(slots - 1, 0))
  local length = 32 + 14 * slots
  if #bytes < length and #bytes == FIRST_READ then
    -- If the string has the right length, this returns its last byte and no more. `entry` checks the rest when it
    -- reads.
    local last = call('GETRANGE', KEYS[key], length - 1, length)
    if #last ~= 1 then
      corrupt(LENGTH, length, #last)
    end
  else
    check_length(bytes, length)
  end
  return { key = key, bytes = bytes, base = base, first = first, slots = slots, low = 0, high = count,
    times = {}, totals = {}, edited = {} }
end

-- Packs all entries in order, oldest first. `log.bytes` must hold the whole log.
local function pack_entries(log)
  local count, oldest_edit = log.high - log.low, log.high
  for index in pairs(log.edited) do
    oldest_edit = min(oldest_edit, index)
  end
  oldest_edit = max(oldest_edit, log.low)
  local parts, unedited = {}, oldest_edit - log.low
  if unedited > 0 then
    local at = (log.first + log.low) % log.slots
    local before_wrap = min(unedited, log.slots - at)
    parts[1] = log.bytes:sub(33 + 14 * at, 32 + 14 * (at + before_wrap))
    parts[2] = log.bytes:sub(33, 32 + 14 * (unedited - before_wrap))
  end
  for index = oldest_edit, log.high - 1 do
    parts[#parts + 1] = pack('<I7I7', entry(log, index))
  end
  return table.concat(parts), count
end

-- Rewrites the ring with room for one more entry plus an eighth of the entries.
local function resize(log)
  if #log.bytes < 32 + 14 * log.slots then
    log.bytes = call('GETRANGE', KEYS[log.key], 0, -1)
    check_length(log.bytes, 32 + 14 * log.slots)
  end
  local packed, count = pack_entries(log)
  log.slots = min(count + 1 + floor(count / 8), SLOTS_MAX)
  log.bytes = ('\0'):rep(32) .. packed .. ('\0'):rep(14 * (log.slots - count))
  log.first, log.rewritten = -log.low, true
end

-- Applies a change to the log in memory: adds `cost` at `time`, or refunds units of the entry at `index`.
local function edit_log(log, key, change)
  log = log or { key = key, bytes = ('\0'):rep(32), base = 0, first = 0, slots = 0, low = 0, high = 0,
    times = {}, totals = {}, edited = {} }
  if change.refunded then
    for index = change.index, log.high - 1 do
      local _, total = entry(log, index)
      log.totals[index], log.edited[index] = (total - change.refunded) % WRAP, true
    end
    return log
  end
  if change.expired > log.low then
    local _, total = entry(log, change.expired - 1)
    log.base, log.low = total, change.expired
  end
  local newest, total = nil, log.base
  if log.high > log.low then
    newest, total = entry(log, log.high - 1)
  end
  -- total + cost could exceed 2^53 and be inexact. This difference is exact.
  total = (total - (WRAP - change.cost)) % WRAP
  local index = log.high - 1
  if newest ~= change.time then
    local count = log.high - log.low
    if count >= log.slots or (log.slots > 64 and count < log.slots / 4) then
      resize(log)
    end
    index = log.high
    log.high = index + 1
  end
  log.times[index], log.totals[index], log.edited[index] = change.time, total, true
  return log
end

-- Writes the changed parts of a log, or all of it if it is short or was resized. Keeps the TTL if `ttl` is nil.
local function write_log(log, ttl)
  local key = KEYS[log.key]
  local count = log.high - log.low
  local head = pack('<BBI6I8I8I8', 1, 3, count, log.base, (log.first + log.low) % max(log.slots, 1), log.slots)
  if log.rewritten or #log.bytes >= 32 + 14 * log.slots then
    local packed = pack_entries(log)
    log.first = -log.low
    head = pack('<BBI6I8I8I8', 1, 3, count, log.base, 0, log.slots)
    local whole = head .. packed .. ('\0'):rep(14 * (log.slots - count))
    if ttl then
      call('SET', key, whole, 'PX', ttl)
    else
      call('SET', key, whole, 'KEEPTTL')
    end
    return
  end
  call('SETRANGE', key, 0, head)
  for index in pairs(log.edited) do
    if index >= log.low then
      local at = 32 + 14 * ((log.first + index) % log.slots)
      call('SETRANGE', key, at, pack('<I7I7', log.times[index], log.totals[index]))
    end
  end
  if ttl then
    call('PEXPIRE', key, ttl)
  end
end

local function sliding_log(log, now, op, cost, _, extra, mark, numbers_at)
  local limit, window, entries = unpack_from('<ddd', batch, numbers_at)
  local low, high, expired, base, used, newest, total = 0, 0, 0, 0, 0, nil, 0
  if log and log.high > log.low then
    low, high = log.low, log.high
    newest, total = entry(log, high - 1)
    now = max(now, newest)
    expired, base = low, log.base
    local function has_expired(time)
      return min(time + window, MAX) <= now
    end
    -- Usually few entries have expired, so search from the oldest in steps that double.
    local reach = 1
    while expired < high and has_expired(entry(log, expired)) do
      local next_index = min(expired + reach, high)
      if next_index < high and not has_expired(entry(log, next_index)) or next_index == high then
        expired = partition_point(log, expired + 1, next_index, has_expired)
        break
      end
      expired, reach = next_index, reach * 2
    end
    if expired > low then
      local _, dropped = entry(log, expired - 1)
      base = dropped
    end
    used = (total - base) % WRAP
  end
  local live = high - expired
  local room = newest == now or live < entries

  -- Returns when all units are back: when the newest entry with units expires. Entries after it were refunded in full.
  local function reset()
    if used == 0 then
      return now
    end
    local index = partition_point(log, expired, high, function(_, sum)
      return sum ~= total
    end)
    return min(entry(log, index) + window, MAX)
  end

  local remaining = room and max(limit - used, 0) or 0
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if used + needed > limit or not room then
      local freeing = partition_point(log, low, high, function(_, before)
        return (total - before) % WRAP + needed > limit
      end)
      if live >= entries then
        freeing = max(freeing, expired + live - entries)
      end
      freeing = max(freeing, expired)
      local retry = now
      if freeing < high then
        retry = min(entry(log, freeing) + window, MAX)
      end
      return REFUSED, retry, remaining, reset(), NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, reset(), NONE, 0
    end
    local expires = min(now + window, MAX)
    remaining = room and max(limit - used - cost, 0) or 0
    return ADMITTED, 0, remaining, expires, AT, now, { expired = expired, time = now, cost = cost }, expires
  elseif op ~= REFUND then
    return NOT_SUPPORTED, 0, remaining, reset(), NONE, 0
  end
  if mark ~= AT or high == 0 then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  local index = partition_point(log, low, high, function(time)
    return time < extra
  end)
  if index == high or entry(log, index) ~= extra or index < expired then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  if index + 16 < high then
    return TOO_OLD, 0, remaining, reset(), NONE, 0
  end
  for above = index, high - 1 do
    -- The refund changes all of them. Read them now, so that a corrupt one fails the Plan before any change.
    entry(log, above)
  end
  local before = base
  if index > expired then
    local _, sum = entry(log, index - 1)
    before = sum
  end
  local _, sum = entry(log, index)
  local refunded = min(cost, (sum - before) % WRAP)
  if refunded == 0 then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  local left = used - refunded
  local reset_time = now
  if left > 0 then
    local rest = (total - refunded) % WRAP
    -- The totals from the refunded entry on decrease by the same amount. Those before it stay.
    local newest_counted = partition_point(log, index, high, function(_, above)
      return above ~= total
    end)
    if newest_counted == index then
      newest_counted = partition_point(log, expired, index, function(_, below)
        return below ~= rest
      end)
    end
    reset_time = min(entry(log, newest_counted) + window, MAX)
  end
  remaining = room and max(limit - left, 0) or 0
  return DONE, refunded, remaining, reset_time, NONE, 0, { refunded = refunded, index = index }
end
